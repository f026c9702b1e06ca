package main

// order are mutants of the code that keeps operations in the order of docs/ordering.md.
var order = []mutant{
	{
		name: "the announcement of a tag message passes a halted lane",
		file: "ucp/rndv_send.go",
		old:  "l.ep.ReserveAM(amRTS,", new: "l.transport().ReserveAM(amRTS,",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^rc$/^one_goroutine$/^121_order_with_small",
	},
	{
		name: "the announcement of an active message passes a halted lane",
		file: "ucp/am_rndv.go",
		old:  "l.ep.ReserveAM(amUserRTS,", new: "l.transport().ReserveAM(amUserRTS,",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^rc$/^one_goroutine$/^121_order_with_small",
	},
	{
		name: "a fence does not wait for a read",
		file: "transports/rc/queue.go",
		old:  "return k >= slotRead", new: "return k > slotGet", tries: 3,
		pkg: "./ucp/ucptest", test: "^TestUCP$/^rc-inproc$/^two_goroutines$/^121_",
	},
	{
		name: "a device atomic passes a fetching one that the owner carries out",
		file: "ucp/amo.go",
		old:  "on.sw.handled < on.sw.atomics", new: "on.sw.handled < on.sw.posted",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^rc$/^one_goroutine$/^121_order_of_random",
	},
	{
		name: "a fence does not wait for what the owner carries out",
		file: "ucp/fence.go",
		old:  "	l.sw.until = l.sw.sent\n	w.haltLane(w.slab.slots[i].lane)", new: "	_ = l.sw",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^rc$/^one_goroutine$/^121_order_with_small",
	},
	{
		name: "a flush does not wait for sends that are not matched",
		file: "ucp/flush.go",
		old:  "s.arg = flushPassed; w.precedes(s.lane, i) {", new: "s.arg = flushPassed; false {",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^121_order_of_random",
	},
	{
		name: "data that was asked for waits for a credit",
		file: "ucp/halt.go",
		old:  "return s.op.sends() && s.phase() == phaseData", new: "return false",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^121_order_with_few",
	},
	{
		name: "a lane that waits for a credit is not resumed",
		file: "ucp/sends.go",
		old:  "		l.starved = false\n		w.swLift(lane)", new: "		l.starved = false",
		pkg: "./ucp", test: "^TestOutstandingIsBounded$", quick: true,
	},
}

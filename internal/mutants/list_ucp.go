package main

// ucpList holds the mutants of ucp: matching, memory, order, flow control.
var ucpList = []mutant{
	{
		name: "an older wildcard loses to an exact receive",
		file: "ucp/tagmatch/posted.go",
		old:  "		if e.seq > limit {", new: "		if limit != ^uint64(0) {",
		pkg: "./ucp/tagmatch", test: "^TestPostedOrder$|^TestAgainstNaive$",
	},
	{
		name: "the mask of a receive does not count for what has come",
		file: "ucp/tagmatch/unexpected.go",
		old:  "if (a.idx.nodes[i].tag^tag)&mask == 0 {", new: "if a.idx.nodes[i].tag == tag {",
		pkg: "./ucp/tagmatch", test: "^TestUnexpectedOrder$|^TestAgainstNaive$",
	},
	{
		name: "a released slot keeps its generation",
		file: "ucp/internal/request/slot.go",
		old:  "	s.Gen = NextGen(s.Gen)\n", new: "",
		pkg: "./ucp", test: "^TestEndedRequestNeverReachesItsHeir$",
	},
	{
		name: "a closed endpoint's handle reaches its heir",
		file: "ucp/endpoint.go",
		old:  "|| w.eps[k].gen != uint32(e.id>>32) ||", new: "||",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^two_goroutines$/a_closed_handle_never_reaches_its_heir",
	},
	{
		name: "a fragment is added twice",
		file: "ucp/reassembly.go",
		old:  "	rx.got += uint64(len(data))\n", new: "	rx.got += 2 * uint64(len(data))\n",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^(4|25)_",
	},
	{
		name: "a flush does not cover what waits",
		file: "ucp/flush.go",
		old:  "	case l.pending > 0 && !resuming:", new: "	case false:",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^5[37]_",
	},
	{
		name: "skip the CRC of a key",
		file: "ucp/internal/keycodec/key.go",
		old:  "; got != sum {", new: "; got != sum && false {",
		pkg: "./ucp/internal/keycodec", test: "^TestEveryBitFlip$",
	},
	{
		name: "skip the bounds of a put",
		file: "ucp/rma_transfer.go",
		old:  "case st == ucs.OK && (off > k.size || n > k.size-off):", new: "case false:",
		pkg: "./ucp", test: "^TestBoundsAreCheckedHere$",
	},
	{
		name: "a put does not look whether the region was revoked",
		file: "transports/internal/mapped/rma.go",
		old:  "addr-rec.base >= rec.put8 || rec.slot.gen.Load() != rec.gen {", new: "addr-rec.base >= rec.put8 {", times: 2,
		pkg: "./transports/internal/mapped", test: "^TestRevoked$",
	},
	{
		name: "close does not wait for accesses under way",
		file: "transports/internal/mapped/region.go",
		old:  "inUse = r.slot.drain(r.owner.drain)", new: "inUse = 0",
		pkg: "./transports/internal/mapped", test: "^TestCloseWaits$",
	},
	{
		name: "a fetched add is a load and a store",
		file: "uct/atomic.go",
		old:  "		return atomic.AddUint32(p, v) - v, ucs.OK",
		new:  "		old := atomic.LoadUint32(p)\n		for range 100 {\n			atomic.LoadUint32(p)\n		}\n		atomic.StoreUint32(p, old+v)\n		return old, ucs.OK",
		pkg:  "./transports/internal/mapped", test: "^TestConcurrentAtomics$", tries: 5,
	},
	{
		name: "the announcement of a tag message passes a stalled lane",
		file: "ucp/rndv_send.go",
		old:  "l.ep.ReserveAM(id, hdr,", new: "l.transport().ReserveAM(id, hdr,",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^rc$/^one_goroutine$/^121_order_with_small",
	},
	{
		name: "a fence does not wait for a read",
		file: "transports/rc/queue.go",
		old:  "return k >= slotRead", new: "return k > slotGet", tries: 3,
		pkg: "./ucp/ucptest", test: "^TestUCP$/^rc-inproc$/^two_goroutines$/^121_",
	},
	{
		name: "a lane that waits for a credit is not resumed",
		file: "ucp/lane_credit.go",
		old:  "		l.setSlow(slowNoCredit, false)\n		w.tryResumeLane(lane)", new: "		l.setSlow(slowNoCredit, false)",
		pkg: "./ucp", test: "^TestOutstandingIsBounded$",
	},
	{
		name: "anybody may name anybody's request",
		file: "ucp/rndv_recv.go",
		old:  "k.Op.Sends() && w.lanes[k.Lane].peer == rx.peer {", new: "k.Op.Sends() {",
		pkg: "./ucp", test: "^TestForeignIDs$",
	},
	{
		name: "a spent budget is not restored",
		file: "ucp/flow_control.go",
		old:  "	if b.exhausted && b.used <= b.limit/2 {", new: "	if b.exhausted && b.used == ^uint64(0) {",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/budget",
	},
	{
		name: "a waiter that is done keeps the right to progress",
		file: "ucp/progress_owner.go",
		old:  "	o.remove(b, x)\n	x.cause = causeOwner\n	o.addToWake(x)\n", new: "	o.remove(b, x)\n	x.cause = causeOwner\n",
		pkg: "./ucp", test: "^TestManyGoroutines$",
	},
	{
		name: "ucp: an answer is lost with the connection that is over",
		file: "ucp/control.go",
		old:  "	if !w.control(lane, m) {", new: "	if !w.control(lane, m) && false {",
		pkg: "./ucp", test: "^TestAnswerByAnotherConnection$",
	},
	{
		name: "ucp: what waits on a lane that is replaced stays behind",
		file: "ucp/lane_failover.go",
		old:  "h.Endpoint, h.pending, h.numOlder, h.resuming = ep, waiting, 0, false", new: "h.Endpoint, h.pending, h.numOlder, h.resuming = ep, waiting[:0], 0, false",
		pkg: "./ucp", test: "^TestReplaced$",
	},
}

package main

// matching are mutants of tags, requests and endpoints.
var matching = []mutant{
	{
		name: "an older wildcard loses to an exact receive",
		file: "ucp/tagmatch/posted.go",
		old:  "		if e.seq > limit {", new: "		if limit != ^uint64(0) {",
		pkg: "./ucp/tagmatch", test: "^TestPostedOrder$|^TestAgainstNaive$", quick: true,
	},
	{
		name: "a younger wildcard wins over an exact receive",
		file: "ucp/tagmatch/posted.go",
		old:  "		if e.seq > limit {", new: "		if limit == 0 {",
		pkg: "./ucp/tagmatch", test: "^TestPostedOrder$|^TestAgainstNaive$", quick: true,
	},
	{
		name: "a single receive takes every tag",
		file: "ucp/tagmatch/posted.go",
		old:  "i != 0 && (p.tag^tag)&p.mask == 0 {", new: "i != 0 {",
		pkg: "./ucp/tagmatch", test: "^TestPostedOrder$|^TestAgainstNaive$", quick: true,
	},
	{
		name: "the mask of a receive does not count for what has come",
		file: "ucp/tagmatch/arrived.go",
		old:  "if (a.x.nodes[i].tag^tag)&mask == 0 {", new: "if a.x.nodes[i].tag == tag {",
		pkg: "./ucp/tagmatch", test: "^TestArrivedOrder$|^TestAgainstNaive$", quick: true,
	},
	{
		name: "a cut message tells the buffer's length",
		file: "ucp/tag_recv.go",
		old:  "	s.tag, s.n = tag, uint64(len(data))", new: "	s.tag, s.n = tag, uint64(min(len(data), len(p)))",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^self$/^one_goroutine$/^11_", quick: true,
	},
	{
		name: "a released slot keeps its generation",
		file: "ucp/slot.go",
		old:  "	s.gen = nextGen(s.gen)\n", new: "",
		pkg: "./ucp", test: "^TestEndedRequestNeverReachesItsHeir$", quick: true,
	},
	{
		name: "a receive consumed under the lock keeps its generation",
		file: "ucp/tag_shared.go",
		old:  "nextGen(g), slotFree", new: "g, slotFree",
		pkg: "./ucp", test: "^TestEndedRequestNeverReachesItsHeir$", quick: true,
	},
	{
		name: "a consumed receive keeps its generation",
		file: "ucp/recv_request.go",
		old:  "nextGen(g), slotFree", new: "g, slotFree",
		pkg: "./ucp", test: "^TestEndedRequestNeverReachesItsHeir$", quick: true,
	},
	{
		name: "a closed endpoint's handle reaches its heir",
		file: "ucp/endpoint.go",
		old:  "|| w.eps[k].gen != uint32(e.id>>32) ||", new: "||",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^two_goroutines$/a_closed_handle_never_reaches_its_heir",
	},
	{
		name: "a fragment is added twice",
		file: "ucp/assembly.go",
		old:  "	s.got += uint64(len(data))\n", new: "	s.got += 2 * uint64(len(data))\n",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^(4|25)_",
	},
	{
		name: "a fragment of another message is taken",
		file: "ucp/assembly.go",
		old:  " || number != uint64(s.count) ||", new: " ||",
		pkg: "./ucp", test: "^TestGarbage$",
	},
	{
		name: "a part of a transfer that has ended ends it whole",
		file: "ucp/port.go",
		old:  "		if s.left > 1 || s.posting() {", new: "		if false {",
		pkg: "./ucp", test: "^TestTransfer", quick: true,
	},
	{
		name: "a lane that nobody uses stays active",
		file: "ucp/lane.go",
		old:  "	port.iface.Deactivate()\n", new: "	_ = port\n",
		pkg: "./ucp", test: "^TestIdleLanesAreNotPolled$", quick: true,
	},
	{
		name: "a flush does not cover what waits",
		file: "ucp/flush.go",
		old:  "	case l.queued > 0 && !w.resuming:", new: "	case false:",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^5[37]_",
	},
}

package main

// device are mutants of the wire format and of the software RNIC.
var device = []mutant{
	{
		name: "the checksum of a packet is not looked at",
		file: "verbs/soft/udp_datagram.go",
		old:  "	return f, d.check(i)", new: "	return f, true",
		pkg: "./verbs/soft", test: "^TestFloodOfGarbage$",
	},
	{
		name: "a packet of a stranger is taken",
		file: "verbs/soft/udplink.go",
		old:  "q.typ == verbs.RC && !q.to.udp.sent(g) {", new: "false {",
		pkg: "./verbs/soft", test: "^TestFloodOfGarbage$",
	},
	{
		name: "a packet of a stranger is taken on the short way",
		file: "verbs/soft/udp_short.go",
		old:  " || !q.to.udp.sent(g) {", new: " {",
		pkg: "./verbs/soft", test: "^TestShortFromStranger$", quick: true,
	},
	{
		name: "the short way forgets what an acknowledgement is for",
		file: "verbs/soft/udp_short.go",
		old:  "	q.stands(h.AckReq(), wire.PlaceOnly, now)\n", new: "	q.rsp.psn = q.rsp.psn.Add(1)\n",
		pkg: "./verbs/soft", test: "^TestShortWayUDP$", quick: true,
	},
	{
		name: "an atomic operation that comes twice is carried out twice",
		file: "verbs/soft/responder.go",
		old:  "		q.again(p, info)\n		return\n",
		new:  "		if _, b, ok := q.d.remote(q.pd, p.rkey, p.addr, 8, verbs.RemoteAtomic); ok && p.op == wire.FetchAdd {\n			fetchAdd(b, p.swapAdd)\n		}\n		q.again(p, info)\n		return\n",
		pkg:  "./verbs/soft", test: "^TestConformanceSim$/^loss$/atomic",
	},
	{
		name: "the pause of a receiver that is not ready is not kept",
		file: "verbs/soft/requester.go",
		old:  "		if r.stuck || r.pause != 0 {", new: "		if r.stuck {",
		pkg: "./verbs/soft", test: "^TestScript$", quick: true,
	},
	{
		name: "what follows a message without a receive is answered",
		file: "verbs/soft/responder.go",
		old:  "		r.silent = true // what comes behind is dropped without a word\n", new: "",
		pkg: "./verbs/soft", test: "^TestScript$", quick: true,
	},
	{
		name: "sequence numbers are compared as if they did not wrap",
		file: "verbs/psn.go",
		old:  "int(int32((uint32(p)-uint32(q))<<8) >> 8)", new: "int(p) - int(q)",
		pkg: "./verbs", test: "^TestPSN$", quick: true,
	},
	{
		name: "a stale key finds the region that came after it",
		file: "verbs/soft/mem.go",
		old:  "	if m == nil || m.key != key {", new: "	if m == nil {",
		pkg: "./verbs/soft", test: "^TestKeysVary$|^TestInvalidate$", quick: true,
	},
	{
		name: "a region is one byte longer than it is",
		file: "verbs/soft/mem.go",
		old:  "off > size || uint64(n) > size-off {", new: "off > size || uint64(n) > size-off+1 {",
		pkg: "./verbs/soft", test: "^TestRanges$", quick: true,
	},
	{
		name: "the work request that failed is flushed like the others",
		file: "verbs/soft/completer.go",
		old:  "		q.endSend(q.sq.at(r.head), status)\n", new: "		_ = status\n",
		pkg: "./verbs/soft", test: "^TestBadKey$", quick: true,
	},
	{
		name: "an acknowledgement ends one packet more than it names",
		file: "verbs/soft/completer.go",
		old:  "		q.retire(p.psn.Add(1))\n	case p.syn.IsRNR():", new: "		q.retire(p.psn.Add(2))\n	case p.syn.IsRNR():",
		pkg: "./verbs/soft", test: "^TestScript$|^TestOracle$",
	},
	{
		name: "a fence does not wait",
		file: "verbs/soft/requester.go",
		old:  "	if r.sent == 0 && w.flags&verbs.SendFence != 0 && r.rd > 0 {", new: "	if false {",
		pkg: "./verbs/soft", test: "^TestOracle$|^TestConformanceSim$/^data$/fence",
	},
	{
		name: "an address handle is looked for when a datagram is sent",
		file: "verbs/soft/datagram.go",
		old:  "case w.to == nil ||", new: "case w.to == nil || q.d.ahs.find(w.to.id) == nil ||",
		pkg: "./verbs/soft", test: "^TestConformanceSim$/^object$/^ah$", quick: true,
	},
	{
		name: "memory is given back while an engine has it in hand",
		file: "verbs/soft/mem.go",
		old:  "	d.quiesce()\n", new: "",
		pkg: "./verbs/soft", test: "^TestCloseWaits$", quick: true,
	},
	{
		name: "who posts inline data is not waited for",
		file: "verbs/soft/quiesce.go",
		old:  "		q.postersLeft()\n", new: "",
		pkg: "./verbs/soft", test: "^TestCloseWaits$", quick: true,
	},
	{
		name: "one packet more than the window holds is under way",
		file: "verbs/soft/window.go",
		old:  "	if room <= 0 {", new: "	if room < 0 {",
		pkg: "./verbs/soft", test: "^TestUnderWay$", quick: true,
	},
	{
		name: "a peer makes the key of any region invalid",
		file: "verbs/soft/mem.go",
		old:  "m != nil && m.revoke && m.pd", new: "m != nil && m.pd",
		pkg: "./verbs/soft", test: "^TestInvalidate$", quick: true,
	},
	{
		name: "time goes on for requests while who receives is interrupted",
		file: "verbs/soft/engine.go",
		old:  " && !d.rx.taken() {", new: " {",
		pkg: "./verbs/soft", test: "^TestInterruptedReceiver$", quick: true,
	},
	{
		name: "a byte that routers change is covered by the checksum",
		file: "verbs/wire/prefix.go",
		old:  "^ bthMask[head[bthCongestion]]", new: "^ bthMask[0xff]",
		pkg: "./verbs/wire", test: "^TestICRC", quick: true,
	},
	{
		name: "any difference of checksums is taken for an identification",
		file: "verbs/wire/icrcid.go",
		old:  "	if reg > 0xffff {", new: "	if reg == 0 {",
		pkg: "./verbs/wire", test: "^TestCheckFindsBrokenBits$|^TestCheck$", quick: true,
	},
	{
		name: "two limited members of a partition match",
		file: "verbs/wire/bth.go",
		old:  " && (a|b)&0x8000 != 0", new: "",
		pkg: "./verbs/wire", test: "^TestPKeysMatch$", quick: true,
	},
}

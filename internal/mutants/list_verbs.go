package main

// verbsList holds the mutants of the software RNIC.
var verbsList = []mutant{
	{
		name: "a refused access is reported by its NAK alone",
		file: "transports/internal/nic/async.go",
		old:  "w.OnQPError(e.QP.QPN())", new: "_ = w.OnQPError",
		pkg: "./transports/rc", test: "^TestRefusedNAKLost$/^CLOSE/^udp$",
	},
	{
		name: "a device's failure ends no connection of ud",
		file: "transports/ud/failure.go",
		old:  "f.failPeer(p, arq.DeviceFailed, endDeviceFailed)", new: "_ = p",
		pkg: "./transports/ud", test: "^TestDeviceFails$",
	},
	{
		name: "a duplicate READ is answered with all that follow",
		file: "verbs/soft/reply.go",
		old:  "		r.pendingResponses |= 1 << (i % maxDestRdAtomic)\n		return\n",
		new:  "		for ; i != r.numSaved; i++ {\n			r.saved[i%maxDestRdAtomic].sent = 0\n			r.pendingResponses |= 1 << (i % maxDestRdAtomic)\n		}\n		return\n",
		pkg:  "./verbs/soft", test: "^TestForeignDuplicateRead$",
	},
	{
		name: "probes go to a foreign peer",
		file: "transports/rc/qp.go",
		old:  " == \"soft\" && port.Goucx {", new: " == \"soft\" {",
		pkg: "./transports/rc", test: "^TestPeerFeatures$",
	},
	{
		name: "the checksum of a packet is not looked at",
		file: "verbs/soft/link_udp.go",
		old:  "	return f, g.Check(i, c)", new: "	return f, true",
		pkg: "./verbs/soft", test: "^TestFloodOfGarbage$",
	},
	{
		name: "an atomic operation that comes twice is carried out twice",
		file: "verbs/soft/responder.go",
		old:  "		q.handleDuplicate(p, info)\n",
		new:  "		if b, ok := q.d.remote(q.pd, p.RKey, p.VA, 8, verbs.RemoteAtomic); ok && p.Opcode == wire.FetchAdd {\n			fetchAdd(b, p.SwapDt)\n		}\n		q.handleDuplicate(p, info)\n",
		pkg:  "./verbs/soft", test: "^TestConformanceSim$/^loss$/atomic",
	},
	{
		name: "sequence numbers are compared as if they did not wrap",
		file: "verbs/psn.go",
		old:  "int(int32((uint32(p)-uint32(q))<<8) >> 8)", new: "int(p) - int(q)",
		pkg: "./verbs", test: "^TestPSN$",
	},
	{
		name: "a stale key finds the region that came after it",
		file: "verbs/soft/mem.go",
		old:  "	if m == nil || m.key != key {", new: "	if m == nil {",
		pkg: "./verbs/soft", test: "^TestKeysVary$|^TestInvalidate$",
	},
	{
		name: "an acknowledgement ends one packet more than it names",
		file: "verbs/soft/completer.go",
		old:  "		return q.retire(p.PSN.Add(1))\n	case p.Syndrome.IsRNR():", new: "		return q.retire(p.PSN.Add(2))\n	case p.Syndrome.IsRNR():",
		pkg: "./verbs/soft", test: "^TestScript$|^TestOracle$",
	},
	{
		name: "a whole window goes again after a time-out",
		file: "verbs/soft/timers.go",
		old:  "	r.probe.count, r.probe.pending = 0, r.probe.enabled\n", new: "	r.probe.count, r.probe.pending = 0, false\n",
		pkg: "./verbs/soft", test: "^TestAloneAfterTimeout$",
	},
	{
		name: "an ICMP error that quotes no probe is a refusal",
		file: "verbs/soft/internal/udp/liveness_linux.go",
		old:  "					bytes.Equal(quoted[:n], q.message[:]) {", new: "					n >= 0 {",
		pkg: "./verbs/soft/internal/udp", test: "^TestForgedErrors$",
	},
	{
		name: "a refused probe is not sent from the data socket",
		file: "verbs/soft/internal/udp/liveness_linux.go",
		old:  "rawSendto(u.FD, q.message[:], &peer.sockaddr, peer.SockaddrLen)", new: "_ = peer", times: 2,
		pkg: "./verbs/soft/internal/udp", test: "^TestForgedErrors$",
	},
	{
		name: "two refusals at once end a peer",
		file: "verbs/soft/internal/udp/liveness_linux.go",
		old:  "now.Sub(q.refusedAt) < probeInterval", new: "now.Sub(q.refusedAt) < 0",
		pkg: "./verbs/soft/internal/udp", test: "^TestRefusalsApart$",
	},
	{
		name: "the sender of a datagram to a group gets it too",
		file: "verbs/soft/multicast_udp.go",
		old:  "if own && q.num == p.SrcQP || !q.acquireOrDefer(g, i) {", new: "if own && q.num == p.DestQP || !q.acquireOrDefer(g, i) {",
		pkg: "./verbs/soft", test: "^TestConformanceUDP$/^multicast$/^own-device$",
	},
	{
		name: "a device receives what came to a group at another interface",
		file: "verbs/soft/internal/udp/group_linux.go",
		old:  "unix.IP_MULTICAST_ALL, 0)", new: "unix.IP_MULTICAST_ALL, 1)",
		pkg: "./verbs/soft", test: "^TestMulticastNetworks$",
	},
	{
		name: "a device receives what came to an IPv6 group at another interface",
		file: "verbs/soft/internal/udp/group_linux.go",
		old:  "		unix.BindToDevice(u.FD, ifi.Name),\n", new: "",
		pkg: "./verbs/soft", test: "^TestMulticastNetworks$",
	},
	{
		name: "a device that sleeps does not wait for its groups",
		file: "verbs/soft/multicast_udp.go",
		old:  "		err = d.background.poller.Watch(all)\n", new: "		err = d.background.poller.Watch(nil)\n",
		pkg: "./verbs/soft", test: "^TestMulticastWakes$",
	},
	{
		name: "a memory window of type 2 is open for all queue pairs",
		file: "verbs/soft/mw.go",
		old:  "(b.window.typ == verbs.MWType1 || b.qp == q)", new: "true",
		pkg: "./verbs/soft", test: "^TestOracle$",
	},
	{
		name: "a memory window grants what its region grants",
		file: "verbs/soft/mw.go",
		old:  " || m.access&need != need", new: "",
		pkg: "./verbs/soft", test: "^TestOracle$",
	},
}

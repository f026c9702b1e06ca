package main

// foreign are mutants of the software RNIC's interoperability with other implementations, and of
// the reports of refused accesses.
var foreign = []mutant{
	{
		name: "a refused access is reported by its NAK alone",
		file: "transports/internal/nic/async.go",
		old:  "				fn(e.QP.QPN())\n", new: "				_ = fn\n",
		pkg: "./transports/rc", test: "^TestRefusedNAKLost$/^CLOSE/^udp$",
	},
	{
		name: "the CLOSE for a refused access is not retransmitted",
		file: "transports/rc/refused.go",
		old:  "			x.at = now.Add(f.retryEvery)\n", new: "			x.at = x.until\n",
		pkg: "./transports/rc", test: "^TestRefusedNAKLost$/^two/^udp$",
	},
	{
		name: "an acknowledgement does not end the CLOSE for a refused access",
		file: "transports/rc/hear.go",
		old:  "	if m.Kind == machine.Gone && !n.refused {\n", new: "	if false {\n",
		pkg: "./transports/rc", test: "^TestRefusedAcknowledged$/^udp$",
	},
	{
		name: "an answer about a connection that refused an access has no reason",
		file: "transports/rc/hear.go",
		old:  "refused := ok && f.refusals.has(&a, &n.from)", new: "refused := false",
		pkg: "./transports/rc", test: "^TestRefusedAskedAfter$/^udp$", quick: true,
	},
	{
		name: "a request flushed after a refused access reports another reason",
		file: "transports/rc/service.go",
		old:  "		err = errRefused\n", new: "		err = failErr(wc.Status.String())\n",
		pkg: "./transports/rc", test: "^TestRefusedWhileSending$/^udp$", quick: true,
	},
	{
		name: "a function runs inside although the worker did its work",
		file: "ucs/async/owner.go",
		old:  "return !w.gone && (w.wanted == nil || w.wanted.Load())", new: "return !w.gone",
		pkg: "./ucs/async", test: "^TestOwnerSoon$", quick: true,
	},
	{
		name: "the descriptor of a worker that stays inside keeps the goroutine busy",
		file: "ucs/async/section.go",
		old:  "if o.readyServeAt() <= now {", new: "if true {",
		pkg: "./ucs/async", test: "^TestWorkerThatStaysInsideCostsLittle$", quick: true,
	},
	{
		name: "a refusal after a go-back is dropped",
		file: "verbs/soft/completer.go",
		old:  "p.psn.Before(r.una) || !p.psn.Before(r.top):", new: "p.psn.Before(r.una) || !p.psn.Before(r.psn):",
		pkg: "./verbs/soft", test: "^TestRefusedBehindRead$", quick: true,
	},
	{
		name: "each answer behind a missing one goes back",
		file: "verbs/soft/completer.go",
		old:  "again := !have.Before(r.late) || !r.late.Before(psn)", new: "again := true",
		pkg: "./verbs/soft", test: "^TestForeignLostReadAnswer$",
	},
	{
		name: "a duplicate READ is answered with all that follow",
		file: "verbs/soft/reply.go",
		old:  "		r.asked |= 1 << (i % maxDestRd)\n		return\n",
		new:  "		for ; i != r.keptN; i++ {\n			r.kept[i%maxDestRd].sent = 0\n			r.asked |= 1 << (i % maxDestRd)\n		}\n		return\n",
		pkg:  "./verbs/soft", test: "^TestForeignDuplicateRead$", quick: true,
	},
	{
		name: "the ACK of a duplicate has the PSN of an atomic",
		file: "verbs/soft/reply.go",
		old:  "; !a.psn.Before(psn) {", new: "; false && !a.psn.Before(psn) {",
		pkg: "./verbs/soft", test: "^TestForeignDuplicateWrite$", quick: true,
	},
	{
		name: "a closing queue pair acknowledges what an answer has acknowledged",
		file: "verbs/soft/reply.go",
		old:  "|| !r.due || s < verbs.StateRTR", new: "|| s < verbs.StateRTR",
		pkg: "./verbs/soft", test: "^TestForeignLastWord$", quick: true,
	},
	{
		name: "an unsignalled message to a foreign peer asks for no ACK",
		file: "verbs/soft/window.go",
		old:  " || q.to.foreign) {", new: ") {",
		pkg: "./verbs/soft", test: "^TestForeignAsks$", quick: true,
	},
	{
		name: "the ACK to a foreign peer goes after the reply",
		file: "verbs/soft/udplink.go",
		old:  "	if q.to.foreign {\n", new: "	if false {\n",
		pkg: "./verbs/soft", test: "^TestBackToForeign$", quick: true,
	},
	{
		name: "no peer is foreign",
		file: "verbs/soft/route.go",
		old:  "return d.kind != overInproc && features&verbs.PeerGoucx == 0", new: "return false",
		pkg: "./verbs/soft", test: "^TestForeignAckFirst$", quick: true,
	},
	{
		name: "a foreign peer sends from one port",
		file: "verbs/soft/udp.go",
		old:  "p.src.port || p.foreign)", new: "p.src.port)",
		pkg: "./verbs/soft", test: "^TestUDPPeer$", quick: true,
	},
	{
		name: "a foreign peer sends without an identification",
		file: "verbs/soft/route.go",
		old:  "case id != 0 && !q.foreign():", new: "case id != 0:",
		pkg: "./verbs/soft", test: "^TestForeignSource$", quick: true,
	},
	{
		name: "a foreign peer's identifications are those of segment batches",
		file: "verbs/soft/udp_datagram.go",
		old:  "ok = id < maxSegments || foreign", new: "ok = id < maxSegments",
		pkg: "./verbs/soft", test: "^TestUDPIdentification$", quick: true,
	},
	{
		name: "a foreign peer gets segment batches",
		file: "verbs/soft/udp_train_linux.go",
		old:  "t.u.gso.Load() && !to.foreign", new: "t.u.gso.Load()",
		pkg: "./verbs/soft", test: "^TestUDPPeer$", quick: true,
	},
	{
		name: "probes go to a foreign peer",
		file: "transports/rc/pair.go",
		old:  " == \"soft\" && at.Goucx {", new: " == \"soft\" {",
		pkg: "./transports/rc", test: "^TestPeerFeatures$", quick: true,
	},
	{
		name: "packets that a full socket did not take are lost",
		file: "verbs/soft/udp_send_linux.go",
		old:  "case done == 0 || noRoom(errno):", new: "case done == 0:",
		pkg: "./verbs/soft", test: "^TestUDPNoRoom$",
	},
	{
		name: "packets to a foreign peer are counted as sent in another order",
		file: "verbs/soft/place.go",
		old:  "if !q.nextPacket(p) {", new: "if !q.nextAnswer(p) && !q.nextRequest(p) && !q.nextAck(p) {",
		pkg: "./verbs/soft", test: "^TestBackToForeign$", quick: true,
	},
}

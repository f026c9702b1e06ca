package main

// queues are mutants of the transports over queue pairs.
var queues = []mutant{
	{
		name: "rc: a table of queue pairs forgets others with the one that goes",
		file: "transports/rc/pair.go",
		old:  "(j-h)&mask >= (j-i)&mask", new: "h >= 0",
		pkg: "./transports/rc", test: "^TestQPNTable$", quick: true,
	},
	{
		name: "rc: one message more is kept than may be",
		file: "transports/rc/progress.go",
		old:  "may := min(n, f.keepMost-f.kept)", new: "may := min(n, f.keepMost-f.kept+1)",
		pkg: "./transports/rc", test: "^TestBudget$", quick: true,
	},
	{
		name: "rc: the end of a source is told twice",
		file: "transports/rc/service.go",
		old:  "	e.parted = true\n", new: "",
		pkg: "./transports/rc", test: "^TestFirstMessage$", quick: true,
	},
	{
		name: "rc: a damaged connection message is believed",
		file: "transports/rc/hear.go",
		old:  "if err := n.parse(f.noteBytes(wc)); err != nil {", new: "if err := n.parse(f.noteBytes(wc)); false {",
		pkg: "./transports/rc", test: "^TestGarbage$", quick: true,
	},
	{
		name: "rc: a pair is read before the one that was left for it",
		file: "transports/rc/recv.go",
		old:  "	p.plain = p.reads && len(p.early)", new: "	p.plain = len(p.early)",
		pkg: "./transports/rc", test: "^TestNextPairWaitsForTheOld$", quick: true,
	},
	{
		name: "rc: who has left a pair is not told that what it sent there is lost",
		file: "transports/rc/service.go",
		old:  "	if known {", new: "	if known || p.retired != 0 {",
		pkg: "./transports/rc", test: "^TestLeftPairCutOff$", quick: true,
	},
	{
		name: "rc: a pair that was left does not answer who repeats there",
		file: "transports/rc/move.go",
		old:  "slowTimer*p.q.f.retriesFor()", new: "0",
		pkg: "./transports/rc", test: "^TestLeftPairUnheard$", quick: true,
	},
	{
		name: "rc: after a move a message overtakes those that wait",
		file: "transports/rc/ep.go",
		old:  "e.ready() && e.pend.Len() == 0 {", new: "e.ready() {",
		pkg: "./transports/rc", test: "^TestConformanceOfRestlessConnections$/^pending$",
	},
	{
		name: "rc: receives that progress has taken are not posted again",
		file: "transports/rc/progress.go",
		old:  "	for f.posted <= f.target-f.batch && f.post() {", new: "	for f.posted <= 0 && f.post() {",
		pkg: "./transports/rc", test: "^TestReceivesArePostedAgain$", quick: true,
	},
	{
		name: "rc: nobody posts receives while the receiver computes",
		file: "transports/internal/nic/reserve.go",
		old:  "		n = r.limit", new: "		n = 0",
		pkg: "./transports/rc", test: "^TestReceiverComputes$",
	},
	{
		name: "rc: the limit event is asked for once",
		file: "transports/internal/nic/reserve.go",
		old:  "	r.touched.Store(r.posted > 0)\n	r.arm()\n", new: "	r.touched.Store(r.posted > 0)\n",
		pkg: "./transports/rc", test: "^TestReceiverComputes$",
	},
	{
		name: "rc: who computes does not hear of connections",
		file: "transports/rc/section.go",
		old:  "	heard, foreign := f.ud.hear(sectionNotes)", new: "	heard, foreign := f.ud.hear(0)",
		pkg: "./transports/rc", test: "^TestConnectsWhileComputing$/^inproc$",
	},
	{
		name: "rc: who computes repeats nothing",
		file: "transports/rc/section.go",
		old:  "	ticked := f.tick(now)", new: "	ticked := false",
		pkg: "./transports/rc", test: "^TestSectionRepeats$",
	},
	{
		name: "rc: a section wakes nobody",
		file: "transports/rc/section.go",
		old:  "heard > 0) {\n		f.wake.Raise()", new: "heard > 0) {\n		_ = f.wake",
		pkg: "./transports/rc", test: "^TestSleeperIsWoken$",
	},
	{
		name: "ud: a packet that came before is delivered again",
		file: "transports/ud/arq/receiver.go",
		old:  "	case d < 0:\n		r.twice++\n		return Duplicate\n", new: "	case d < 0:\n		return Deliver\n",
		pkg: "./transports/ud/arq", test: "^TestHalfLost$", quick: true,
	},
	{
		name: "ud: the selective acknowledgement is one packet off",
		file: "transports/ud/arq/receiver.go",
		old:  "			s[(i-1)/64] |= 1 << ((i - 1) % 64)", new: "			s[i/64%4] |= 1 << (i % 64)",
		pkg: "./transports/ud/arq", test: "^TestSingleHole$|^TestHalfLost$", quick: true,
	},
	{
		name: "ud: the receiver's window is not heeded",
		file: "transports/ud/arq/ack.go",
		old:  "	edge := ack + Seq(window)\n", new: "	edge := ack + MaxWindow\n",
		pkg: "./transports/ud/arq", test: "^TestWindowClosed$", quick: true,
	},
	{
		name: "ud: a connect that comes twice makes two flows",
		file: "transports/ud/arq/mux.go",
		old:  "		m.known[o] = f\n", new: "",
		pkg: "./transports/ud/arq", test: "^TestHalfLost$", quick: true,
	},
	{
		name: "ud: an acknowledgement of what was never sent is believed",
		file: "transports/ud/arq/ack.go",
		old:  " || uint32(n) > uint32(s.sent-s.una) {", new: " {",
		pkg: "./transports/ud/arq", test: "^TestBogusAcks$",
	},
	{
		name: "ud: messages that are kept are not bounded",
		file: "transports/ud/progress.go",
		old:  "			if k < may {", new: "			if k <= may {",
		pkg: "./transports/ud", test: "^TestKept$", quick: true,
	},
	{
		name: "ud: endpoint and source of a peer that closes are told apart",
		file: "transports/ud/failure.go",
		old:  "			fail.Endpoint = e\n", new: "			f.handler.HandleFailure(uct.Failure{Endpoint: e})\n",
		pkg: "./transports/ud", test: "^TestPeerCloses$/^inproc$", quick: true,
	},
}

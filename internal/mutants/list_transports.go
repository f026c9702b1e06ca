package main

// transportsList holds the mutants of config, ucs, wireup and the transports.
var transportsList = []mutant{
	{
		name: "a sender stores to cells that the receiver has not read",
		file: "ucs/ring/producer.go",
		old:  "head%batchCells == 0 && p.limit <= p.free {", new: "head%batchCells == 0 {",
		pkg: "./ucs/ring", test: "^TestFullLeavesUnreadCells$",
	},
	{
		name: "a setting of UCX that goucx does not use passes unseen",
		file: "config/ucxunused.go",
		old:  "		if !same {", new: "		if !same && fault != \"\" {",
		pkg: "./config", test: "^TestUnusedWarns$",
	},
	{
		name: "the wide name takes precedence over UCX's name of one transport",
		file: "config/merge.go",
		old:  "ok && e.origin.Kind == Flag {", new: "ok {",
		pkg: "./config", test: "^TestAliases$",
	},
	{
		name: "accept a segment that is not sealed",
		file: "ucs/shmem/segment_linux.go",
		old:  "if got&seals != seals {", new: "if false {",
		pkg: "./ucs/shmem", test: "^TestMapChecksBeforeTouching$",
	},
	{
		name: "the async goroutine enters without its barrier",
		file: "ucs/async/section.go",
		old:  "err = shmem.PrivateBarrier()", new: "_ = shmem.PrivateBarrier", tries: 8,
		pkg: "./ucs/async", test: "^TestExclusionHard$",
	},
	{
		name: "an unknown required feature is accepted",
		file: "ucs/protocol/protocol.go",
		old:  "unknown |= features & Required & (1 << i)", new: "unknown |= features & Required & (1 << i) & 0",
		pkg: "./wireup", test: "^TestAddressGolden$",
	},
	{
		name: "skip the CRC of an address",
		file: "wireup/parse.go",
		old:  "if got := crc32.Checksum(b[:len(b)-crcLen], castagnoli); got != sum {", new: "if got := crc32.Checksum(b[:len(b)-crcLen], castagnoli); got != sum && false {",
		pkg: "./wireup", test: "^TestParseEveryBitFlip$",
	},
	{
		name: "the worse lane is chosen",
		file: "wireup/score.go",
		old:  "cmp.Compare(b.Score, a.Score)", new: "cmp.Compare(a.Score, b.Score)",
		pkg: "./wireup", test: "^TestChoose$",
	},
	{
		name: "the accepting side sends before the other is ready",
		file: "wireup/machine/threeway.go",
		old:  "s.conf.ThreeWay && s.txState < txClosed", new: "false",
		pkg: "./wireup/machine", test: "^TestQueuesCarryEverything$",
	},
	{
		name: "a crossing OPEN of a connection that is over binds this one to it",
		file: "wireup/machine/threeway.go",
		old:  "			return // the peer will reply to the local OPEN", new: "			s.remote = msg.From\n			return",
		pkg: "./wireup/machine", test: "^TestCrossingIsNotBound$",
	},
	{
		name: "rc: a pair is read before the one that was left for it",
		file: "transports/rc/recv.go",
		old:  "	p.fastRecv = p.life == qpReading && len(p.outOfOrder)", new: "	p.fastRecv = len(p.outOfOrder)",
		pkg: "./transports/rc", test: "^TestNextPairWaitsForTheOld$",
	},
	{
		name: "rc: after a move a message overtakes those that wait",
		file: "transports/rc/ep.go",
		old:  "e.txReady() && e.pend.Len() == 0 {", new: "e.txReady() {",
		pkg: "./transports/rc", test: "^TestConformanceOfRestlessConnections$/^pending$",
	},
	{
		name: "rc: no receives are posted while the receiver computes",
		file: "transports/internal/nic/reserve.go",
		old:  "		n = r.limit", new: "		n = 0",
		pkg: "./transports/rc", test: "^TestReceiverComputes$",
	},
	{
		name: "ud: a packet that came before is delivered again",
		file: "transports/ud/arq/receiver.go",
		old:  "	case d < 0:\n		r.duplicates++\n		return Duplicate\n", new: "	case d < 0:\n		return Deliver\n",
		pkg: "./transports/ud/arq", test: "^TestHalfLost$",
	},
	{
		name: "ud: the receiver's window is not heeded",
		file: "transports/ud/arq/ack.go",
		old:  "	edge := ack + Seq(window)\n", new: "	edge := ack + MaxWindow\n",
		pkg: "./transports/ud/arq", test: "^TestWindowClosed$",
	},
	{
		name: "the sleeper puts no barrier before its last look",
		file: "transports/shm/arm.go",
		old:  "if f.fenceFlag == 0 && globalBarrier() != nil || f.hasWork() {", new: "if f.hasWork() {", tries: 5,
		pkg: "./transports/shm", test: "^TestWakeUpsBetweenProcesses$/^barrier$",
	},
	{
		name: "cells are not given back",
		file: "transports/shm/progress.go",
		old:  "	if rx.Release() {", new: "	if false {",
		pkg: "./transports/shm", test: "^TestManyMessagesInOrder$",
	},
	{
		name: "busy connections keep others from their turns",
		file: "transports/shm/progress.go",
		old:  "	if len(f.doorbells) != 0 {", new: "	if false {",
		pkg: "./transports/shm", test: "^TestColdConnectionIsHeardBesideBusyHotOnes$",
	},
	{
		name: "a new connection is read before what a closed one holds",
		file: "transports/shm/order.go",
		old:  "n += f.drainRings(f.ByPeer[e.peer][i])", new: "_ = f.ByPeer[e.peer][i]",
		pkg: "./transports/shm", test: "^TestClosedConnectionIsReadFirst$",
	},
	{
		name: "a message overtakes those that wait",
		file: "transports/shm/pending.go",
		old:  "		e.block(ucs.NoResource)\n		f := e.f", new: "		f := e.f",
		pkg: "./transports/shm", test: "^TestConformance$/^pending$",
	},
	{
		name: "a message in the mailbox is overwritten before it is acknowledged",
		file: "ucs/ring/mailbox.go",
		old:  "if !p.blocked && p.mailFree() {", new: "if !p.blocked {",
		pkg: "./ucs/ring", test: "^TestMailboxKeepsOrder$",
	},
	{
		name: "a reply in the mailbox acknowledges a message that its handler still reads",
		file: "transports/shm/mailbox.go",
		old:  "(e.f.progressDepth == 0 || e.f.mail.taking)", new: "true",
		pkg: "./transports/shm", test: "^TestMailboxReplyInHandler$",
	},
	{
		name: "a worker sleeps although a message is in a mailbox that it no longer polls",
		file: "transports/shm/mailbox.go",
		old:  "return e.rx.Ready() || e.mail.used && e.rx.MailReady()", new: "return e.rx.Ready()",
		pkg: "./transports/shm", test: "^TestMailboxMessageIsNotLost$",
	},
	{
		name: "silent connections to shm keep others out",
		file: "transports/shm/accept.go",
		old:  "			f.dropOldestHalfOpen()\n		}\n		sock, err", new: "			return\n		}\n		sock, err",
		pkg: "./transports/shm", test: "^TestSilentConnections$",
	},
}

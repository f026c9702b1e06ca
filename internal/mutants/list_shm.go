package main

// shm are mutants of the shared-memory transport.
var shm = []mutant{
	{
		name: "the sleeper puts no barrier before its last look",
		file: "transports/shm/arm.go",
		old:  "if !f.noBarrier && globalBarrier() != nil || f.anything() {", new: "if f.anything() {", tries: 5,
		pkg: "./transports/shm", test: "^TestWakeUpsBetweenProcesses$/^barrier$",
	},
	{
		name: "the sleeper does not look once more",
		file: "transports/shm/arm.go",
		old:  "globalBarrier() != nil || f.anything() {", new: "globalBarrier() != nil {",
		pkg: "./transports/shm", test: "^TestNoWakeUpIsLost$|^TestMessageWakesASleeper$",
	},
	{
		name: "a sender does not look at the armed word",
		file: "transports/shm/am.go",
		old:  "if atomic.LoadUint32(e.armed) != 0 || !e.tx.Watched() {", new: "if _ = atomic.LoadUint32; !e.tx.Watched() {", times: 3,
		pkg: "./transports/shm", test: "^TestMessageWakesASleeper$", quick: true,
	},
	{
		name: "cells are not given back",
		file: "transports/shm/progress.go",
		old:  "	if rx.Release() {", new: "	if false {",
		pkg: "./transports/shm", test: "^TestManyMessagesInOrder$",
	},
	{
		name: "a full pass is handed up in the wrong order",
		file: "transports/shm/progress.go",
		old:  "	f.handler.HandleAM(rx.Data(), f.ds[:k])",
		new:  "	if k > 1 {\n		f.ds[0], f.ds[1] = f.ds[1], f.ds[0]\n	}\n	f.handler.HandleAM(rx.Data(), f.ds[:k])",
		pkg:  "./transports/shm", test: "^TestManyMessagesInOrder$", quick: true,
	},
	{
		name: "the connection's end frees no memory",
		file: "transports/shm/ep.go",
		old:  "err = errors.Join(err, p.seg.Close())", new: "_ = p.seg.Close",
		pkg: "./transports/shm", test: "^TestClosedPairsLeaveNoMapping$", quick: true,
	},
	{
		name: "a descriptor stays open",
		file: "transports/shm/ep.go",
		old:  "err = errors.Join(err, e.peerInbox.close(), e.peerEvent.Close())", new: "err = errors.Join(err, e.peerInbox.close())",
		pkg: "./transports/shm", test: "^TestFewDescriptors$",
	},
	{
		name: "no hint is given",
		file: "transports/shm/ep.go",
		old:  "		atomic.StoreUint64(&e.peerInbox.heads[e.peerSlot], e.tx.Head()^e.salt)", new: "		_ = &e.peerInbox.heads[e.peerSlot]",
		pkg: "./transports/shm", test: "^TestNoHintIsLost$|^TestColdConnection",
	},
	{
		name: "a new connection is read before what a closed one holds",
		file: "transports/shm/order.go",
		old:  "n += f.drainAll(f.peers[e.peer][i])", new: "_ = f.peers[e.peer][i]",
		pkg: "./transports/shm", test: "^TestClosedConnectionIsReadFirst$", quick: true,
	},
	{
		name: "an endpoint takes a connection that the peer reads before a closed one",
		file: "transports/shm/conn.go",
		old:  "!e.initiated && !e.separate &&", new: "!e.initiated &&",
		pkg: "./transports/shm", test: "^TestConnectionThatThePeerReadsIsNotTaken$", quick: true,
	},
	{
		name: "the scan finds nothing",
		file: "transports/shm/temper.go",
		old:  "if e := f.slots[f.scanAt]; e != nil && !e.watched {", new: "if e := f.slots[f.scanAt]; e != nil && e.watched {",
		pkg: "./transports/shm", test: "^TestScanFindsWhatHintsLost$", quick: true,
	},
	{
		name: "a waiting operation is forgotten",
		file: "transports/internal/pending/queue.go",
		old:  "max(min(k, len(q.tokens)), 0))", new: "min(k+1, len(q.tokens)))",
		pkg: "./transports/shm", test: "^TestPendingGoesOnWhenRoomComesBack$", quick: true,
	},
	{
		name: "a message overtakes those that wait",
		file: "transports/shm/pending.go",
		old:  "		e.block(ucs.NoResource)\n		e.wait()", new: "		e.wait()",
		pkg: "./transports/shm", test: "^TestConformance$/^pending$",
	},
	{
		name: "a hello of another version is taken",
		file: "transports/shm/wire.go",
		old:  "; v != helloVersion {", new: "; v == 0xdead {",
		pkg: "./transports/shm", test: "^TestHelloRefusesDamage$", quick: true,
	},
	{
		name: "the user of a stranger does not matter",
		file: "transports/shm/keyserver.go",
		old:  "; p.UID != me {", new: "; p.UID != me && me == 1<<31 {",
		pkg: "./transports/shm", test: "^TestAnotherUser$", quick: true,
	},
	{
		name: "garbage in a ring is skipped",
		file: "transports/shm/pairs.go",
		old:  "		f.failLater(e, failErr(\"it wrote garbage into its ring\"))", new: "		e.rx.Advance()",
		pkg: "./transports/shm", test: "^TestGarbageInTheRingFailsThatPeerAlone$", quick: true,
	},
	{
		name: "shm: after a move a message overtakes those that wait",
		file: "transports/shm/pairs.go",
		old:  "	if e.status != ucs.OK || e.pend.Len() > 0 {", new: "	if e.status != ucs.OK {",
		pkg: "./transports/shm", test: "^TestWaitingOutlivesAMove$", quick: true,
	},
	{
		name: "shm: a clone of a virtual machine counts as this one",
		file: "transports/shm/address.go",
		old:  "certain(a) && bytes.Equal(a[38:46], b[38:46]) &&", new: "certain(a) && len(b) > 0 &&",
		pkg: "./transports/shm", test: "^TestGoneForCertain$", quick: true,
	},
	{
		name: "shm: hosts without network addresses count as one",
		file: "transports/shm/address.go",
		old:  " && !bytes.Equal(a[38:46], make([]byte, 8))", new: "",
		pkg: "./transports/shm", test: "^TestGoneForCertain$", quick: true,
	},
}

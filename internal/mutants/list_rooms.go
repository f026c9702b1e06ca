package main

// rooms are mutants of rendezvous, the budget for what nobody waits for, active
// messages, and waiting.
var rooms = []mutant{
	{
		name: "a rendezvous ends with its first piece",
		file: "ucp/rndv_recv.go",
		old:  "	if r.off == wanted {", new: "	if r.off > 0 {",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^1[58]_",
	},
	{
		name: "a piece of a rendezvous is put at its beginning",
		file: "ucp/rndv_recv.go",
		old:  "	copy(b[r.off:], data)", new: "	copy(b, data)",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^1[58]_",
	},
	{
		name: "anybody may name anybody's request",
		file: "ucp/named.go",
		old:  "k.op.sends() && w.t.lanes[k.lane].peer == s.peer {", new: "k.op.sends() {",
		pkg: "./ucp", test: "^TestForeignIDs$", quick: true,
	},
	{
		name: "what was announced may be asked for twice",
		file: "ucp/rndv_send.go",
		old:  "	if m.phase() != phaseRTS && m.phase() != phaseLent || n > m.n {", new: "	if n > m.n {",
		pkg: "./ucp", test: "^TestForeignIDs$|^TestLateMessages$|^TestWireRendezvous$", quick: true,
	},
	{
		name: "the peer may ask for more than there is",
		file: "ucp/rndv_send.go",
		old:  "	if m.phase() != phaseRTS && m.phase() != phaseLent || n > m.n {", new: "	if m.phase() != phaseRTS && m.phase() != phaseLent {",
		pkg: "./ucp", test: "^TestForeignIDs$|^TestBadAnnouncements$", quick: true,
	},
	{
		name: "a key is believed that nobody asked for",
		file: "ucp/rndv_read.go",
		old:  "	if r.parent != awaitsKey {", new: "	if false {",
		pkg: "./ucp", test: "^TestForeignIDs$", quick: true,
	},
	{
		name: "memory stays lent after its message",
		file: "ucp/rndv_read.go",
		old:  "	w.slab.giveBack(i)\n	w.t.lanes[", new: "	w.t.lanes[",
		pkg: "./ucp", test: "^TestAbortWhileRead$", quick: true,
	},
	{
		name: "connections are put to sleep that were used last",
		file: "ucp/lull.go",
		old:  "since[min(excess, len(since))-1]", new: "since[len(since)-1]",
		pkg: "./ucp", test: "^TestLullsTakeTheOldest$", quick: true,
	},
	{
		name: "any number of sends may be announced",
		file: "ucp/sends.go",
		old:  "s.op.sends() && l.used >= w.outstanding {", new: "s.op.sends() && false {",
		pkg: "./ucp", test: "^TestOutstandingIsBounded$", quick: true,
	},
	{
		name: "the budget for unexpected messages is never spent",
		file: "ucp/budget.go",
		old:  "	if b.held > b.limit && !b.spent {", new: "	if b.held > b.limit && false {",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/budget",
	},
	{
		name: "a spent budget is not restored",
		file: "ucp/budget.go",
		old:  "	if b.spent && b.held <= b.limit/2 {", new: "	if b.spent && b.held == ^uint64(0) {",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/budget",
	},
	{
		name: "a kept message stays in the ring's cell",
		file: "ucp/kept.go",
		old:  "	case placeCell, placeSender:\n", new: "	case placeSender:\n",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^79_",
	},
	{
		name: "a released message's handle reaches its heir",
		file: "ucp/kept.go",
		old:  "	if k.r == nil || k.r.gen.Load() != k.gen {", new: "	if k.r == nil {",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^shm$/^one_goroutine$/^79_",
	},
	{
		name: "a waiter that is done keeps the right to progress",
		file: "ucp/baton.go",
		old:  "	w.delist(x)\n	x.fate = fateBaton\n	b.push(x)\n", new: "	w.delist(x)\n	x.fate = fateBaton\n",
		pkg: "./ucp", test: "^TestManyGoroutines$",
	},
	{
		name: "an ended operation's event reaches its heir",
		file: "ucp/slot.go",
		old:  " || b.slots[i].gen != uint32(id>>32) || b.slots[i].state == slotFree {", new: " || b.slots[i].state == slotFree {",
		pkg: "./ucp", test: "^TestEndedRequestNeverReachesItsHeir$", quick: true,
	},
	{
		name: "a flush is silent on what was refused",
		file: "ucp/refused.go",
		old:  "	if w.unread == 0 {", new: "	if w.unread >= 0 {",
		pkg: "./ucp", test: "^TestFlushReportsWhatWasRefused$", quick: true,
	},
	{
		name: "memory is closed under an operation",
		file: "ucp/memory.go",
		old:  "	if m.ctx.holds(m.buf) {", new: "	if m.ctx.holds(nil) {",
		pkg: "./ucp", test: "^TestCloseOfMemoryInUse$", quick: true,
	},
	{
		name: "keys are resolved by another domain's number",
		file: "ucp/memory.go",
		old:  "uint8(r.domain), r.AppendKey(nil)}", new: "0, r.AppendKey(nil)}",
		pkg: "./ucp", test: "^TestKeyNamesTheDomainsOfTheAddress$", quick: true,
	},
	{
		name: "who failed before makes a loss of a peer that closes",
		file: "ucp/close.go",
		old:  "return l.closes && l.status", new: "return l.status",
		pkg: "./ucp", test: "^TestCloseWhilePeersClose$", quick: true,
	},
	{
		name: "what a transport had when its lane was halted goes behind what came since",
		file: "ucp/halt.go",
		old:  "slices.Insert(h.waiting, h.older, ts...)", new: "slices.Insert(h.waiting, len(h.waiting), ts...)",
		pkg: "./ucp", test: "^TestHaltedLanePutsTheOlderFirst$", quick: true,
	},
	{
		name: "ucp: what waits on a lane that is replaced stays behind",
		file: "ucp/replace.go",
		old:  "h.Endpoint, h.waiting, h.older, h.open = ep, waiting, 0, false", new: "h.Endpoint, h.waiting, h.older, h.open = ep, waiting[:0], 0, false",
		pkg: "./ucp", test: "^TestReplaced$", quick: true,
	},
	{
		name: "ucp: a key goes on by the transport that its lane was replaced from",
		file: "ucp/replace.go",
		old:  "			w.bySoftware(k, c)\n", new: "			_ = k\n",
		pkg: "./ucp", test: "^TestReplaced$", quick: true,
	},
	{
		name: "ucp: an answer is lost with the connection that is over",
		file: "ucp/reply.go",
		old:  "	if !w.control(lane, m) {", new: "	if !w.control(lane, m) && false {",
		pkg: "./ucp", test: "^TestAnswerByAnotherConnection$", quick: true,
	},
	{
		name: "ucp: the end of a connection that was left ends its successor",
		file: "ucp/fail.go",
		old:  "	left := w.leftLane(i)\n	w.failLane(i, reason)\n	if left {", new: "	left := w.leftLane(i)\n	w.failLane(i, reason)\n	if left && false {",
		pkg: "./ucp", test: "^TestAnswerByAnotherConnection$", quick: true,
	},
}

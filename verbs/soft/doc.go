// Package soft is the software RNIC: a verbs provider without hardware. Its
// queue pairs behave as those of an adapter do, in every way that a program can
// observe, over two links: in-process, between devices of one program, and UDP,
// in the format of RoCEv2.
//
// # One packet's way
//
// A post puts work requests into the queue pair's send queue (sq.go) and tries
// its owner word (owner.go). Who holds the word may run the queue pair's
// machines: requester.go cuts messages into packets, a link carries them,
// responder.go of the other side executes them and says what to answer, and
// completer.go of the first side ends the work requests. The machines are pure:
// packets and time go in, packets and completions come out. engine.go decides who
// runs them: whoever posts or polls, and a background goroutine when nobody does.
//
// # Locks
//
// Nobody waits for an owner word. Who finds it taken leaves a note in it and goes
// on; the owner looks at the note when it gives the word back. The order is owner
// word, shared receive queue, completion queue.
//
// Start reading at provider.go, then engine.go.
package soft

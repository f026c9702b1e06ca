// Package soft is a software RNIC: a verbs provider without hardware. Its queue pairs
// behave like those of an adapter in every way that a program can observe. It has two
// links: in-process, between devices of one program, and UDP, in the RoCEv2 format. A
// Fabric replaces both: a simulated network, or the in-process one for devices with
// Faults. All links stand behind one interface (link.go).
//
// # Path of a packet
//
// PostSend writes work requests to the send queue (sq.go) and tries to take the queue
// pair's ownership word (owner.go). Only the owner of that word runs the queue pair's
// machines. At the sender requester.go cuts messages into packets, and a link carries
// them. At the receiver responder.go executes them and makes the responses. Back at the
// sender completer.go completes the work requests. The machines are pure: packets and
// time go in, packets and completions come out. engine.go decides which goroutine runs
// them: one that posts or polls, or a background goroutine while none does
// (background.go). Each thread domain has an engine of its own.
//
// # Locks
//
// The data path does not wait for an ownership word. A goroutine that finds the word
// taken sets a flag in it and continues. The owner checks the flag when it releases the
// word. The exceptions are the control path, a post that must grow the send queue, and
// reception from a Fabric. The lock order is ownership word, shared receive queue,
// completion queue.
//
// Start reading at provider.go, then engine.go.
package soft

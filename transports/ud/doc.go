// Package ud is the transport of unreliable datagrams made reliable: one queue
// pair per interface reaches every peer, so a connection costs a few hundred bytes
// and no queue pair. It carries active messages of up to one packet each, without
// put, get and atomics, and its endpoints need the peer's address only, which is
// why connections of other transports are agreed on over it.
//
// Package arq decides what is sent again, acknowledged and given up; this package
// is its hands: memory, queue pair, clock, callbacks. An endpoint is a flow of its
// own, opened by its first message. Its messages are copied into registered memory,
// where they lie until they are acknowledged: every form of sending is done when it
// returns.
//
// # Who does the work
//
// Progress does all of it. While the program computes, the async goroutine does
// what needs no callback: it takes in what arrives (bounded, for the handler of the
// next Progress), acknowledges, sends again, and answers those who ask whether we
// live. docs/ud.md tells more; docs/wire/ud.md has the bytes.
//
// Start reading at iface.go and progress.go.
package ud

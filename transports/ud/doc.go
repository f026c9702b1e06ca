// Package ud implements the transport of reliable active messages over unreliable
// datagrams. One UD queue pair per interface reaches every peer, so a connection needs a
// few hundred bytes and no queue pair of its own. An active message has at most one
// packet. There is no put, get or atomic operation. An endpoint needs only the peer's
// address, so other transports exchange their connection messages over ud.
//
// Package arq decides which packets are retransmitted and acknowledged, and when a flow
// fails. This package provides memory, the queue pair, the clock and the callbacks. An
// endpoint is one flow, which its first message opens. Every send copies the message into
// registered memory, where it stays until it is acknowledged. So every form of send has
// completed locally when it returns.
//
// # Progress and the async goroutine
//
// Progress does all work. While the program computes, the async goroutine does the part
// that calls no handler. It receives packets up to a bound and queues them for the next
// Progress. It also sends ACKs, retransmits, and replies to liveness probes. docs/ud.md
// has the details, docs/wire/ud.md the packet formats.
//
// Start reading at iface.go and progress.go.
package ud

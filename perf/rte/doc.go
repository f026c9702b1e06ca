// Package rte is the run-time environment of a benchmark: the control
// connection between the two processes that carry one out. It exchanges
// parameters and addresses, holds barriers, and tells each side when the other
// has failed or gone. The measured messages never pass here.
//
// The protocol is goucx's own and stands in docs/perftest.md: eight bytes of
// magic and a version from each side at once, then records of a length and a
// JSON object. What is not this protocol is refused and, where it is UCX's own
// tool, named.
//
// Start reading at Conn.
package rte

// Package rte is the run-time environment of a benchmark: the control connection between its two
// processes. It exchanges parameters and addresses, implements barriers, and reports to each side
// when the other has failed or exited. It never carries the measured messages.
//
// The protocol is goucx's own; docs/perftest.md describes it. Each side sends eight bytes of magic,
// a version and feature bits at once. Records of a length and a JSON object follow. Another protocol is
// refused; UCX's own tool is recognized and named in the error.
//
// Start reading at Conn.
package rte

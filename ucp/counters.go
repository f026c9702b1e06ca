package ucp

// counters are kept by the worker alone, so they cost an increment.
type counters struct {
	received   uint64 // messages and fragments
	unexpected uint64 // messages that came before their receive
	fragmented uint64 // messages sent in fragments
	pending    uint64 // operations that waited for resources
	bad        uint64 // packets that broke the protocol
	failures   uint64 // connections that failed
}

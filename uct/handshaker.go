package uct

// Handshaker is an Endpoint that sends no data before its peer has replied.
type Handshaker interface {
	// Connecting reports whether the peer's reply is outstanding: no posted operation has been
	// sent. When the peer is known not to reply, the caller can close the endpoint at once.
	Connecting() bool
}

package uct

// Connector is implemented by ifaces whose Attr.Connect is ConnectToEndpoint. Each side creates an
// endpoint. Both exchange the endpoint addresses out of band, and each connects its own endpoint.
// NewEndpoint of such an iface returns ErrUnsupported.
type Connector interface {
	// NewUnconnected creates an endpoint for thread index t. Until Connect its operations return
	// NoResource and its pending queue waits.
	NewUnconnected(t int) (EndpointToConnect, error)
}

// Handshaker is an Endpoint that sends no data before its peer has replied.
type Handshaker interface {
	// Connecting reports whether the peer's reply is outstanding: no posted operation has been
	// sent. When the peer is known not to reply, the caller can close the endpoint at once.
	Connecting() bool
}

// EndpointToConnect is an endpoint created by a Connector.
type EndpointToConnect interface {
	Endpoint
	// Address appends the endpoint's address, at most 255 bytes.
	Address(b []byte) []byte
	// Connect connects the endpoint to the peer's endpoint with address ep on the iface at a. From
	// then on, messages of the peer may arrive.
	Connect(a Address, ep []byte) error
}

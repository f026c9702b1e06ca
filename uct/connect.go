package uct

// Connector is implemented by ifaces whose Attr.Connect is ConnectToEndpoint:
// each side makes an endpoint, both exchange its address by another way, and
// each connects its own. NewEndpoint of such an iface answers ErrUnsupported.
type Connector interface {
	// NewUnconnected makes an endpoint for thread index t. Until Connect its
	// operations answer NoResource and its pending queue waits.
	NewUnconnected(t int) (EndpointToConnect, error)
}

// Handshaker is an Endpoint that sends nothing before its peer has answered.
type Handshaker interface {
	// Connecting reports whether the peer has not answered yet: nothing that was posted
	// has left. Where it is known that the peer will not answer, the endpoint can be
	// given up at once.
	Connecting() bool
}

// EndpointToConnect is an endpoint of a Connector.
type EndpointToConnect interface {
	Endpoint
	// Address appends the endpoint's own address, at most 255 bytes.
	Address(b []byte) []byte
	// Connect ties it to the peer's endpoint with address ep on the iface at a.
	// Messages of the peer may arrive from then on.
	Connect(a Address, ep []byte) error
}

package config

// OriginKind is the kind of a value's source, the lowest precedence first.
type OriginKind uint8

const (
	Default OriginKind = iota // the table
	File                      // a configuration file
	Env                       // a UCX_* variable
	Flag                      // a flag of the command, or Set.With
)

// Origin is the source of a value.
type Origin struct {
	Kind OriginKind
	// Where is "" for Default, else the exact location: "/etc/ucx/ucx.conf:12",
	// "/x/goucx.yaml:shm.ring_cells", "UCX_TLS", "--tls".
	Where string
}

// String returns the location, or "default".
func (o Origin) String() string {
	switch o.Kind {
	case Default:
		return "default"
	case Env:
		return "environment " + o.Where
	case Flag:
		return "flag " + o.Where
	default:
		return o.Where
	}
}

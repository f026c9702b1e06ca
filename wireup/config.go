package wireup

import "github.com/goucx/goucx/config"

// Settings that filter transports and devices, with UCX's names.
var (
	rowTLS = config.New("TLS", "all", config.ListOf("transports"), "",
		"Transports to use, by name or alias. A name followed by :aux allows the transport for connecting only.")
	rowNetDevices = config.New("NET_DEVICES", "all", config.ListOf("devices"), "",
		"Network devices to use, as ucx_info -d shows them, with or without the port.")
	rowShmDevices = config.New("SHM_DEVICES", "all", config.ListOf("devices"), "",
		"Shared-memory devices to use.")
	rowSelfDevices = config.New("SELF_DEVICES", "all", config.ListOf("devices"), "",
		"Devices for a worker's communication with itself.")
)

// Settings returns the settings of this package.
func Settings() config.Table {
	return config.Table{Section: "transport selection", Settings: []config.Setting{
		rowTLS, rowNetDevices, rowShmDevices, rowSelfDevices,
	}}
}

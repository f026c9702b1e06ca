// Package nic is what the transports over package verbs share: a Component whose
// resources are the ports of devices, a Domain over a device and a protection
// domain, registered memory with its packed keys, and the address of a port.
//
//	Component → Domain (device, PD) → the transport's iface on a port
//	            Domain → Mem (local and remote registration) → packed key → Key
//
// It knows package verbs alone: who opens a component hands it the providers.
//
// Start reading at component.go and mem.go.
package nic

// Package nic is the common part of the transports over package verbs. It has a Component whose
// resources are the ports of devices, and a Domain over a device and a protection domain. It
// also has registered memory with its packed keys, and the address of a port.
//
//	Component → Domain (device, PD) → the transport's iface on a port
//	            Domain → Mem (local and remote registration) → packed key → Key
//
// It depends on package verbs only: the providers are passed to the component.
//
// Start reading at component.go and mem.go.
package nic

// Package conn holds what the connections of transports/shm and transports/rc have in common:
// their life, the table of an interface's connections, the queue of connections that need
// service, the report of their end, and idle eviction.
//
// Package wireup/machine decides about the steps of the handshake. The transport executes them, and
// embeds Conn in its connection and Table in its interface.
package conn

// Command ucx_info shows devices and transports, settings with their origin, and what is refused
// and why. Its options and its output are those of UCX's tool of the same name.
//
// Each option prints one section. It calls the same functions that the library uses to decide. A
// stage (stage.go) holds the domains and ifaces that the sections describe. `make generate` writes
// docs/settings.md with this command's tests. Start reading at run in tool.go.
package main

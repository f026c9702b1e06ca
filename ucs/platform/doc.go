// Package platform determines, once, which features of the kernel and the container this
// process may use. It also identifies the host, its namespaces and the process.
//
// A feature that is not available has a name and a reason in Report. ucx_info prints them,
// and transports return the reasons as their own. Nothing is derived from version numbers:
// every feature is tried.
package platform

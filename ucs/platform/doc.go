// Package platform finds out, once, what this kernel and this container let us
// do, and who we are: the host, its namespaces, the process.
//
// What is refused has a name and a reason (Report), which ucx_info prints and
// transports give as theirs. Nothing here guesses from versions: every feature
// is tried.
package platform

// Package goucx opens a [ucp.Context] over all transports that goucx is built
// with. It is the only package that knows both ucp and the transports;
// everything that a program does with the context is in package ucp, where the
// example of this package goes on.
package goucx

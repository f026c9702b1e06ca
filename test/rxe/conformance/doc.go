// Package conformance has the suites of packages uct and ucp over the transports rc and ud on RDMA devices. It
// consists of tests that need the build tag ibverbs and a device, which GOUCX_IBV_DEVICE names. Package
// rxe runs their binary in its machine; on a host with hardware:
//
//	go test -c -tags ibverbs ./test/rxe/conformance
//	GOUCX_IBV_DEVICE=mlx5_0 ./conformance.test -test.v
//
// -test.short divides the numbers of messages: by 20 in uct/ucttest, by 10 in ucp/ucptest.
package conformance

// Command rdmapeer is a peer for the test programs of others: it takes the place of the client or
// of the server of rdma-core's ibv_{rc,uc,ud,srq}_pingpong and of perftest's
// ib_{send,write,read,atomic}_{lat,bw}, with a device of package verbs. Two rdmapeers can run
// against each other, too.
//
//	rdmapeer -addr 10.77.0.2 ib_send_bw                 the server of ib_send_bw
//	rdmapeer -addr 10.77.0.2 ib_send_bw 10.77.0.1       its client
//
// Options have the letters of the programs. Unlike these, rdmapeer checks the data of every run:
//
//   - Against another rdmapeer each message has its own content, known to both sides. Memory that
//     the peer wrote is checked at the end of the run, and so are the bytes behind it.
//   - ibv_*_pingpong receives into the buffer that it sends from, so it returns what it received.
//     rdmapeer sends another content each time, and expects it back.
//   - perftest fills its buffers with random bytes once. What can be known is checked: messages
//     repeat after a turn of its buffer; a READ of the same address returns the same bytes; atomics
//     return consecutive values and their sum is the number of iterations; ib_write_lat counts in the
//     last byte, in memory that is zero otherwise; bytes behind the announced size stay.
//
// A run ends with an error that names its reason: the field of a message that is malformed, the
// completion that failed, the peer that closed its connection, or the limit (-limit), which every run
// has.
//
// # Versions
//
// rdmapeer announces perftest's protocol 6.06, that of perftest 4.5, and has been run against that.
// It accepts 5.70 and later. From 6.28 on perftest exchanges its parameters in a binary message,
// unless the peer announces an older version, as rdmapeer does. Newer versions than 6.06 are
// untested.
//
// Sources: src/perftest_communication.c and src/*_{lat,bw}.c of perftest 4.5-0.17;
// libibverbs/examples/*_pingpong.c of rdma-core 44; the bytes in testdata, recorded with strace.
//
// Start reading at run.go, then perftest.go and pingpong.go.
package main

package main

// below are mutants of services, settings and addresses.
var below = []mutant{
	{
		name: "accept a segment that is not sealed",
		file: "ucs/shmem/segment_linux.go",
		old:  "if got&seals != seals {", new: "if false {",
		pkg: "./ucs/shmem", test: "^TestMapChecksBeforeTouching$", quick: true,
	},
	{
		name: "accept a segment of another size",
		file: "ucs/shmem/segment_linux.go",
		old:  "if st.Size != int64(size) {", new: "if false {",
		pkg: "./ucs/shmem", test: "^TestMapChecksBeforeTouching$", quick: true,
	},
	{
		name: "the barrier between processes does nothing",
		file: "ucs/shmem/membarrier_linux.go",
		old:  "	return membarrier(\"global\", barrierGlobal)", new: "	return nil",
		pkg: "./ucs/shmem", test: "^TestBarrierHoldsStoreBeforeLoad$",
	},
	{
		name: "the async goroutine enters without its barrier",
		file: "ucs/async/section.go",
		old:  "err = shmem.PrivateBarrier()", new: "_ = shmem.PrivateBarrier",
		pkg: "./ucs/async", test: "^TestExclusion",
	},
	{
		name: "a cancelled timer's number takes its heir along",
		file: "ucs/async/wheel.go",
		old:  "|| w.nodes[i].gen != gen ||", new: "||",
		pkg: "./ucs/async", test: "^TestWheel", quick: true,
	},
	{
		name: "skip the CRC of an address",
		file: "wireup/parse.go",
		old:  "if got := crc32.Checksum(b[:len(b)-crcLen], castagnoli); got != sum {", new: "if false {",
		pkg: "./wireup", test: "^TestParseEveryBitFlip$", quick: true,
	},
	{
		name: "the worse lane is chosen",
		file: "wireup/choose.go",
		old:  "cmp.Compare(b.Score, a.Score)", new: "cmp.Compare(a.Score, b.Score)",
		pkg: "./wireup", test: "^TestChoose$", quick: true,
	},
	{
		name: "the consumer gives a cell back that it has not read",
		file: "ucs/ring/consumer.go",
		old:  "	storeRelease(c.cellTail, c.want)", new: "	storeRelease(c.cellTail, c.want+1)",
		pkg: "./ucs/ring", test: "^TestRandomised$|^TestTwoGoroutines$|^TestNoRoomIsTransient$", quick: true,
	},
	{
		name: "a message is published before its payload",
		file: "transports/shm/am.go",
		old:  "	c.SetPayload(p)\n	if fault.Enabled {",
		new:  "	c.Publish(ring.First(e.tx.Head(), uint8(id), len(p)))\n	for i := range 300 {\n		c.SetHeader(uint64(i))\n	}\n	c.SetHeader(hdr)\n	c.SetPayload(p)\n	if fault.Enabled {",
		pkg:  "./transports/shm", test: "^TestManySenders$|^TestTwoProcesses$|^TestMonkey$",
	},
	{
		name: "a bulk message beyond its area is believed",
		file: "ucs/ring/consumer.go",
		old:  "at+size > c.bulkSize || ", new: "",
		pkg: "./ucs/ring", test: "^TestGarbageFromThePeer$", quick: true,
	},
}

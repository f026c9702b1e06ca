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
		old:  "	return membarrier(\"global\", barrierGlobal)", new: "	return nil", tries: 8,
		pkg: "./ucs/shmem", test: "^TestBarrierHoldsStoreBeforeLoad$",
	},
	{
		name: "the async goroutine enters without its barrier",
		file: "ucs/async/section.go",
		old:  "err = shmem.PrivateBarrier()", new: "_ = shmem.PrivateBarrier", tries: 8,
		pkg: "./ucs/async", test: "^TestExclusionHard$",
	},
	{
		name: "a cancelled timer's number takes its heir along",
		file: "ucs/async/wheel.go",
		old:  "|| w.nodes[i].gen != gen ||", new: "|| gen == 0 ||",
		pkg: "./ucs/async", test: "^TestWheel", quick: true,
	},
	{
		name: "skip the CRC of an address",
		file: "wireup/parse.go",
		old:  "if got := crc32.Checksum(b[:len(b)-crcLen], castagnoli); got != sum {", new: "if got := crc32.Checksum(b[:len(b)-crcLen], castagnoli); got != sum && false {",
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
		name: "a bulk message is published before its place is written",
		file: "ucs/ring/producer.go",
		old:  "	c.setBulk(p.resPos, uint64(n), advance)\n	c.Publish(First(p.head, id, 0) | flagBulk)\n",
		new:  "	c.Publish(First(p.head, id, 0) | flagBulk)\n	for range 100 {\n		p.Watched()\n	}\n	c.setBulk(p.resPos, uint64(n), advance)\n",
		pkg:  "./ucs/ring", test: "^TestTwoGoroutines$", tries: 3,
	},
	{
		name: "a bulk message beyond its area is believed",
		file: "ucs/ring/consumer.go",
		old:  "at+size > c.bulkSize || ", new: "",
		pkg: "./ucs/ring", test: "^TestGarbageFromThePeer$", quick: true,
	},
	{
		name: "queue pairs of one number on two adapters are one interface",
		file: "transports/internal/nic/address.go",
		old:  "mix(le.Uint64(g)^mix(le.Uint64(g[8:])))", new: "mix(le.Uint64(g)&0)",
		pkg: "./transports/internal/nic", test: "^TestAddressNames$", quick: true,
	},
}

package main

// memory are mutants of remote memory, keys and atomics.
var memory = []mutant{
	{
		name: "skip the CRC of a key",
		file: "ucp/key.go",
		old:  "; got != sum {", new: "; got != sum && false {",
		pkg: "./ucp", test: "^TestKeyEveryBitFlip$", quick: true,
	},
	{
		name: "a key is taken at a worker of another context",
		file: "ucp/resolve.go",
		old:  "	if r.key.owner != r.view.Owner() {", new: "	if false {",
		pkg: "./ucp/ucptest", test: "^TestUCP$/^self$/^one_goroutine$/^58_", quick: true,
	},
	{
		name: "skip the bounds of a put",
		file: "ucp/transfer.go",
		old:  "case st == ucs.OK && (off > k.size || n > k.size-off):", new: "case false:",
		pkg: "./ucp", test: "^TestBoundsAreCheckedHere$", quick: true,
	},
	{
		name: "a failed transfer keeps what was registered for it",
		file: "ucp/post.go",
		old:  "	w.slab.letGo(i)\n", new: "",
		pkg: "./ucp", test: "^TestUncopiedThatFail$", quick: true,
	},
	{
		name: "a sleeping worker keeps the buffers of what has ended well",
		file: "ucp/sleep.go",
		old:  "sweep := w.slab.sweepAll(lain)", new: "sweep := time.Duration(0)",
		pkg: "./ucp", test: "^TestBuffersOfASleepingWorker$", quick: true,
	},
	{
		name: "the right to put is not asked for",
		file: "ucp/rkey.go",
		old:  "if k.access&uct.MemRemotePut != 0 && l.put.short >= 8 {", new: "if l.put.short >= 8 {",
		pkg: "./ucp", test: "^TestAccessRights$", quick: true,
	},
	{
		name: "a put does not look whether the region was revoked",
		file: "transports/internal/mapped/rma.go",
		old:  "addr-rec.base >= rec.put8 || rec.slot.gen.Load() != rec.gen {", new: "addr-rec.base >= rec.put8 {", times: 2,
		pkg: "./transports/internal/mapped", test: "^TestRevoked$", quick: true,
	},
	{
		name: "a put reaches one byte beyond the region",
		file: "transports/internal/mapped/keys.go",
		old:  "rec.put8 = s.Len - 7", new: "rec.put8 = s.Len - 6",
		pkg: "./transports/internal/mapped", test: "^TestRange$|^TestUint64$", quick: true,
	},
	{
		name: "two regions in turn have one generation",
		file: "transports/internal/mapped/table.go",
		old:  "gen != 0 {\n			return gen", new: "gen != 0 {\n			return 1",
		pkg: "./transports/internal/mapped", test: "^TestSlotReuse$", quick: true,
	},
	{
		name: "close does not wait for accesses under way",
		file: "transports/internal/mapped/region.go",
		old:  "inUse = r.slot.drain(r.owner.drain)", new: "inUse = 0",
		pkg: "./transports/internal/mapped", test: "^TestCloseWaits$", quick: true,
	},
	{
		name: "a fetched add is a load and a store",
		file: "uct/atomic.go",
		old:  "		return atomic.AddUint32(p, v) - v, ucs.OK",
		new:  "		old := atomic.LoadUint32(p)\n		for range 100 {\n			atomic.LoadUint32(p)\n		}\n		atomic.StoreUint32(p, old+v)\n		return old, ucs.OK",
		pkg:  "./transports/internal/mapped", test: "^TestConcurrentAtomics$", tries: 5,
	},
	{
		name: "a key is given back while an operation has it",
		file: "ucp/rkey.go",
		old:  "		if w.keyInUse(l) {", new: "		if false {",
		pkg: "./ucp", test: "^TestKeyCloseAfterPost$", quick: true,
	},
}

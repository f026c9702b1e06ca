package main

// strangers are mutants of the checks against hostile processes and datagrams.
var strangers = []mutant{
	{
		name: "a connection message longer than any ends the queue pair",
		file: "transports/rc/datagrams.go",
		old:  "w.SG[1] = uint64(i), 2,", new: "w.SG[1] = uint64(i), 1,",
		pkg: "./transports/rc", test: "^TestLongDatagram$", quick: true,
	},
	{
		name: "noise to a program that sleeps wakes nobody",
		file: "transports/rc/datagrams.go",
		old:  "u.cq.Arm(false)", new: "u.cq.Arm(true)",
		pkg: "./transports/rc", test: "^TestNoiseWhileAsleep$",
	},
	{
		name: "a datagram beyond the MTU takes a receive",
		file: "verbs/soft/datagram.go",
		old:  "if p.n > q.mtu {", new: "if false {",
		pkg: "./verbs/soft", test: "^TestDatagramBeyondMTU$", quick: true,
	},
	{
		name: "silent connections to shm keep others out",
		file: "transports/shm/accept.go",
		old:  "			f.dropOldestEmbryo()\n		}\n		sock, err", new: "			return\n		}\n		sock, err",
		pkg: "./transports/shm", test: "^TestSilentConnections$", quick: true,
	},
	{
		name: "a planted link is followed",
		file: "ucs/stats/live/dir.go",
		old:  "i, err := os.Lstat(dir)", new: "i, err := os.Stat(dir)",
		pkg: "./ucs/stats/live", test: "^TestPlantedDefaultDir$", quick: true,
	},
	{
		name: "a directory of another user is used",
		file: "ucs/stats/live/dir.go",
		old:  "uid != os.Geteuid() {", new: "false {",
		pkg: "./ucs/stats/live", test: "^TestPlantedDefaultDir$", quick: true,
	},
	{
		name: "a refused sendmsg is not found at start",
		file: "verbs/soft/provider.go",
		old:  "if err := tryUDP(); err != nil {", new: "if err := tryUDP(); false {",
		pkg: "./test", test: "^TestSeccompPackets$/^sendmsg EPERM$/^why$",
	},
}

package main

// moves are mutants of the connection state machine with Config.TwoStep.
var moves = []mutant{
	{
		name: "the accepting side sends before the other is ready",
		file: "wireup/machine/halves.go",
		old:  "s.conf.TwoStep && !s.saidBye", new: "false",
		pkg: "./wireup/machine", test: "^TestQueuesCarryEverything$", quick: true,
	},
	{
		name: "who was not heard is not told again that the pair is ready",
		file: "wireup/machine/move.go",
		old:  "		s.readyAgain(msg.Pair)\n", new: "",
		pkg: "./wireup/machine", test: "^TestQueuesCarryEverything$", quick: true,
	},
	{
		name: "a peer that sleeps again takes the pair away that it just offered",
		file: "wireup/machine/sleep.go",
		old:  "s.offer == None && s.next == None && !s.SaidBye()", new: "s.offer == None && !s.SaidBye()",
		pkg: "./wireup/machine", test: "^TestQueuesCarryEverything$", quick: true,
	},
	{
		name: "a crossing hello of a connection that is over binds this one to it",
		file: "wireup/machine/halves.go",
		old:  "		return // the peer will reply to the local OPEN", new: "		s.remote = msg.From\n		return",
		pkg: "./wireup/machine", test: "^TestCrossingIsNotBound$", quick: true,
	},
	{
		name: "a close does not wait for the other half",
		file: "wireup/machine/end.go",
		old:  "|| s.offer == None && s.next == None {", new: "|| s.offer == None {",
		pkg: "./wireup/machine", test: "^TestQueuesClose$", quick: true,
	},
	{
		name: "who ended and is gone counts as lost",
		file: "wireup/machine/end.go",
		old:  "	case s.saidBye && s.heardBye:\n", new: "	case false:\n",
		pkg: "./wireup/machine", test: "^TestQueuesClose$", quick: true,
	},
}

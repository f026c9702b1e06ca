package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/goucx/goucx/internal/cmdline"
	"github.com/goucx/goucx/perf"
	"github.com/goucx/goucx/ucp/sharing"
)

// groups is the option table: UCX's letters and texts, and the long names that goucx adds.
var groups = []group{
	{"Common options", []option{
		{
			letter: "t", long: "test", arg: "<test>", test: true, help: []string{"test to run:"},
			value: func(o *options) pflag.Value { return testValue(&o.Test) },
		},
		{letter: "s", long: "size", arg: "<size>", test: true, help: []string{
			"list of scatter-gather sizes for single message (8)", `for example: "-s 16,48,8k:2,14"`,
		}, value: func(o *options) pflag.Value { return sizesValue(&o.Sizes) }},
		{letter: "m", long: "memory", arg: "<send mem type>[,<recv mem type>]", test: true, help: []string{
			"memory type of message for sender and receiver (host)", "    host - System memory, allocated by goucx",
			"    heap - System memory, of the Go heap (UCP tests)",
		}, value: func(o *options) pflag.Value { return memoryValue(&o.SendHeap, &o.RecvHeap) }},
		{
			letter: "n", long: "iterations", arg: "<iters>", test: true, help: []string{"number of iterations to run, 0 without end (1000000)"},
			value: func(o *options) pflag.Value { return int64Value(&o.Iterations) },
		},
		{
			letter: "w", long: "warmup", arg: "<iters>", test: true, help: []string{"number of warm-up iterations, at most a tenth of -n (10000)"},
			value: func(o *options) pflag.Value { return int64Value(&o.Warmup) },
		},
		{
			letter: "c", long: "cpus", arg: "<cpulist>", help: []string{"set affinity to this CPU list (off)"},
			value: func(o *options) pflag.Value { return cpusValue(&o.cpus) },
		},
		{letter: "O", long: "outstanding", arg: "<count>", test: true, help: []string{
			"maximal number of uncompleted outstanding sends, 0: that of the test (0)",
		}, value: func(o *options) pflag.Value { return intValue(&o.Window) }},
		{
			letter: "i", long: "stride", arg: "<offset>", test: true, help: []string{"distance between consecutive scatter-gather entries (0)"},
			value: func(o *options) pflag.Value { return lengthValue(&o.Stride) },
		},
		{letter: "l", long: "loopback", help: []string{
			"use loopback connection", "in this case, the process will communicate with itself,",
			"so passing server hostname is not allowed",
		}, value: func(o *options) pflag.Value { return boolValue(&o.loopback) }},
		{
			letter: "o", long: "no-responder-progress", test: true, help: []string{
				"do not progress the responder in one-sided tests, which fail",
				"where messages carry out the operation: put, get and atomics of",
				"ud; some atomics of rc",
			},
			value: func(o *options) pflag.Value { return boolValue(&o.Unprogressed) },
		},
		{
			letter: "B", long: "nonblock", test: true, help: []string{"register memory with NONBLOCK flag"},
			value: func(o *options) pflag.Value { return boolValue(&o.NoPin) },
		},
		{letter: "b", long: "batch", arg: "<file>", help: []string{
			"read and execute tests from a batch file: every line in the",
			"file is a test to run, first word is test name, the rest of",
			"the line is command-line arguments for the test.",
			"several files are combined, each line with each.",
		}, value: func(o *options) pflag.Value { return listValue(&o.batch) }},
		{
			letter: "R", long: "rank", arg: "<rank>", test: true, help: []string{"percentile rank of the percentile data in latency tests (50.0)"},
			value: func(o *options) pflag.Value { return rankValue(&o.Rank) },
		},
		{
			letter: "V", long: "validate", test: true, help: []string{"validate the data of ping-pong tests"},
			value: func(o *options) pflag.Value { return boolValue(&o.Validate) },
		},
		{
			letter: "p", long: "port", arg: "<port>", help: []string{"TCP port to use for data exchange (13337)"},
			value: func(o *options) pflag.Value { return portValue(&o.port) },
		},
		{
			letter: "6", long: "ipv6", help: []string{"Use IPv6 address for in data exchange"},
			value: func(o *options) pflag.Value { return boolValue(&o.ipv6) },
		},
		{
			long: "wait", arg: "<time>", help: []string{"how long the client waits for a server to come (5s)"},
			value: func(o *options) pflag.Value { return durationValue(&o.wait) },
		},
		{
			long: "interval", arg: "<time>", help: []string{"time between lines of results (1s)"},
			value: func(o *options) pflag.Value { return durationValue(&o.interval) },
		},
		{
			long: "gc-interval", arg: "<time>", help: []string{"run Go's garbage collector at this interval (never)"},
			value: func(o *options) pflag.Value { return durationValue(&o.gcInterval) },
		},
		{long: "stamp-each", test: true, help: []string{
			"read the clock at every message of a stream, as UCX's tool",
			"does, instead of at every 64th",
		}, value: func(o *options) pflag.Value { return boolValue(&o.StampEach) }},
		{long: "calibrate", arg: "<tl>", help: []string{
			"measure each way in which a transport (shm) copies messages,",
			"between two processes that it starts, and print the settings",
			"with which it is fastest; -t, -s (sizes to measure), -m, -n and",
			"-w restrict it, -c takes two processors",
		}, value: func(o *options) pflag.Value { return calibrateValue(&o.calibrate) }},
		{
			letter: "P", long: "mpi", arg: "<0|1>", help: []string{"use MPI to find the other side"},
			value: func(*options) pflag.Value { return onlyValue("0", "1", noMPI, false) },
		},
		{
			long: "completion", arg: "<shell>", help: []string{"print the completion script of a shell: bash, zsh or fish"},
			value: func(o *options) pflag.Value { return choiceValue(&o.completion, cmdline.Shells) },
		},
		{
			long: "man", help: []string{"print the manual page, for man -l"},
			value: func(o *options) pflag.Value { return boolValue(&o.man) },
		},
		{
			long: "version", help: []string{"show the version and the revision of this program"},
			value: func(o *options) pflag.Value { return boolValue(&o.version) },
		},
		{
			letter: "h", long: "help", help: []string{"show this help message"},
			value: func(o *options) pflag.Value { return boolValue(&o.help) },
		},
	}},
	{"Output format", []option{
		{
			letter: "N", long: "numeric", help: []string{"use numeric formatting (thousands separator)"},
			value: func(o *options) pflag.Value { return boolValue(&o.style.Numeric) },
		},
		{
			letter: "f", long: "final", help: []string{"print only final numbers"},
			value: func(o *options) pflag.Value { return boolValue(&o.style.FinalOnly) },
		},
		{
			letter: "v", long: "csv", help: []string{"print CSV-formatted output"},
			value: func(o *options) pflag.Value { return boolValue(&o.style.CSV) },
		},
		{
			long: "json", help: []string{"print one JSON object for each line of results"},
			value: func(o *options) pflag.Value { return boolValue(&o.style.JSON) },
		},
		{
			long: "percentiles", help: []string{"print p50, p99, p99.9 and the maximum too"},
			value: func(o *options) pflag.Value { return boolValue(&o.style.Percentiles) },
		},
		{
			long: "plot", arg: "<file>", help: []string{"draw the results with ucx_plot as <file>, an SVG"},
			value: func(o *options) pflag.Value { return parsed(&o.plot, itself, svgName) },
		},
		{
			letter: "q", long: "quiet", line: true, help: []string{"print no notes and warnings"},
			value: func(o *options) pflag.Value { return boolValue(&o.quiet) },
		},
		{
			letter: "X", long: "extra", help: []string{"print extra information about the operation: its transports"},
			value: func(o *options) pflag.Value { return boolValue(&o.style.Extra) },
		},
	}},
	{"UCT and verbs only", []option{
		{
			letter: "d", long: "device", arg: "<device>", test: true, help: []string{"device to use for testing"},
			value: func(o *options) pflag.Value { return stringValue(&o.Device) },
		},
		{letter: "D", long: "layout", arg: "<layout>", test: true, help: []string{
			"data layout for sender side:",
			"    short - short messages (default)",
			"    bcopy - copy-out (cannot be used for atomics)",
			"    zcopy - zero-copy (cannot be used for atomics)",
			"UCP tests take contig alone, verbs tests short (inline in the",
			"work request where the message fits) and zcopy",
		}, value: func(o *options) pflag.Value { return layoutValue(&o.Layout) }},
	}},
	{"Verbs only", []option{
		{long: "post-list", arg: "<count>", test: true, help: []string{
			"work requests that a bandwidth test posts at once (1; 32 of",
			"verbs_rate)",
		}, value: func(o *options) pflag.Value { return intValue(&o.PostList) }},
		{long: "unsignaled", arg: "<count>", test: true, help: []string{
			"work requests of verbs_rate for each completion (64)",
		}, value: func(o *options) pflag.Value { return intValue(&o.Unsignaled) }},
		{long: "without", arg: "<features>", test: true, help: []string{
			"features that verbs_rate does without, a comma list of",
			"    postlist   - lists of one work request",
			"    unsignaled - a completion for each work request",
			"    inlining   - the message is fetched from memory",
			"    blueflame  - no work request is written with its doorbell",
		}, value: func(o *options) pflag.Value { return stringValue(&o.Without) }},
		{long: "share", arg: "<object=x,...>", test: true, help: []string{
			"how many threads of verbs_rate share one object of a kind:",
			"buf, ctx, pd, mr, cq, qp (1; of a context all threads, if they",
			"share anything else but buf)",
		}, value: func(o *options) pflag.Value { return parsed(&o.Ways, perf.Ways.String, perf.ParseWays) }},
		{long: "pcap", arg: "<file>", help: []string{
			"write the packets that this process sends and receives over UDP;",
			"tshark -d udp.port==<port>,infiniband reads them",
		}, value: func(o *options) pflag.Value { return stringValue(&o.pcap) }},
	}},
	{"UCT only", []option{
		{
			letter: "x", long: "transport", arg: "<tl>", test: true, help: []string{"transport to use for testing"},
			value: func(o *options) pflag.Value { return stringValue(&o.Transport) },
		},
		{
			letter: "W", long: "flow-control", arg: "<count>", test: true, help: []string{"flow control window size, for active messages (127)"},
			value: func(o *options) pflag.Value { return intValue(&o.AMWindow) },
		},
		{
			letter: "H", long: "header", arg: "<size>", test: true, help: []string{
				"active message header size (8), included in message size;", "of UCP tests (0), not included",
			},
			value: func(o *options) pflag.Value { return lengthValue(&o.AMHeader) },
		},
		{letter: "A", long: "async", arg: "<mode>", test: true, help: []string{
			"asynchronous progress mode (thread_spinlock)",
		}, value: func(*options) pflag.Value {
			return onlyValue("thread_spinlock thread", "thread_mutex signal", oneProgress, false)
		}},
	}},
	{"UCP and verbs only", []option{
		{
			letter: "T", long: "threads", arg: "<threads>[:1]", test: true, help: []string{
				"number of threads in the test (1); verbs tests take 2 with -l:", "one for each side, on the first two processors of -c;", "verbs_rate takes any number with -l",
			},
			value: func(o *options) pflag.Value { return threadsValue(&o.ThreadCount) },
		},
		{long: "sharing", arg: "<policy>", test: true, help: []string{
			"the threads of a UCP test send as Threads of one worker with this",
			"sharing policy, and each receives by its own worker; also of",
			"verbs_rate, in place of --share:",
			strings.Join(policies(), " "),
		}, value: func(o *options) pflag.Value {
			return withWords(parsed(&o.Sharing, itself, sharing.Parser().Parse), strings.Join(policies(), " "))
		}},
	}},
	{"UCP only", []option{
		{letter: "M", long: "thread-mode", arg: "<thread>", test: true, help: []string{
			"thread support level for progress engine (single)",
			"    single     - only the master thread can access",
			"    serialized - one thread can access at a time",
			"    multi      - multiple threads can access",
		}, value: func(o *options) pflag.Value { return choiceValue(&o.Threads, "single serialized multi") }},
		{
			letter: "C", long: "wildcard", test: true, help: []string{"use wild-card tag for tag tests"},
			value: func(o *options) pflag.Value { return boolValue(&o.Wildcard) },
		},
		{
			letter: "U", long: "unexpected", test: true, help: []string{"force unexpected flow by using tag probe"},
			value: func(o *options) pflag.Value { return boolValue(&o.Unexpected) },
		},
		{
			letter: "r", long: "stream-mode", arg: "<mode>", test: true, help: []string{"receive mode for stream tests (recv)"},
			value: func(*options) pflag.Value { return onlyValue("recv", "recv_data", noStreams, false) },
		},
		{
			letter: "I", long: "wakeup", test: true, help: []string{"create context with wakeup feature enabled (always so)"},
			value: func(o *options) pflag.Value { return boolValue(&o.Wakeup) },
		},
		{
			letter: "e", long: "error-handling", arg: "[<mode>]", bare: "peer", test: true, help: []string{
				"error handling of endpoints: none, peer or failover (always on)",
			},
			value: func(o *options) pflag.Value { return errorModeValue(&o.ErrorHandling) },
		},
		{letter: "E", long: "wait-mode", arg: "<mode>", test: true, help: []string{
			"wait mode for tests (poll)", "    poll  - repeatedly progress the worker",
			"    sleep - spin for UCX_SPIN_TIME, then sleep until woken",
		}, value: func(o *options) pflag.Value { return waitModeValue(&o.Sleep) }},
		{
			letter: "y", long: "copy", test: true, help: []string{"copy to user memory in the handler of active messages"},
			value: func(o *options) pflag.Value { return boolValue(&o.AMCopy) },
		},
		{
			letter: "z", long: "registered", test: true, help: []string{"pass pre-registered memory handle"},
			value: func(o *options) pflag.Value { return boolValue(&o.Registered) },
		},
	}},
	{"Of UCX's tool", []option{
		{letter: "K", long: "inband", arg: "<ca:port>", refused: noMAD, help: []string{"find the other side through the fabric"}},
		{letter: "a", long: "accelerator", arg: "<send>[,<recv>]", test: true, help: []string{
			"device that starts the operations of sender and receiver (host)",
		}, value: func(*options) pflag.Value { return onlyValue("host", "cuda rocm gdaki", noGPU, true) }},
		{letter: "L", long: "level", arg: "<level>", test: true, help: []string{
			"threads of a GPU that start an operation together (thread)",
		}, value: func(*options) pflag.Value { return onlyValue("thread", "warp block grid", noGPU, false) }},
		{letter: "F", long: "device-window", arg: "<count>", test: true, refused: noGPU, help: []string{"flow control window of a GPU's operations"}},
		{letter: "Y", long: "channel-mode", arg: "<mode>", test: true, refused: noGPU, help: []string{"choice of channels of a GPU's operations"}},
		{letter: "g", long: "daemon-local", arg: "<ip>[:<port>]", test: true, refused: noDaemon, help: []string{"daemon that executes this side's operations"}},
		{letter: "G", long: "daemon-remote", arg: "<ip>[:<port>]", test: true, refused: noDaemon, help: []string{"daemon that executes the other side's operations"}},
	}},
}

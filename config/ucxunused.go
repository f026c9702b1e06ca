package config

import (
	"fmt"
	"slices"
	"strings"
)

// ucxUnused lists why goucx has no use for a variable of UCX. The first entry counts of which a
// pattern matches the name. Each pattern is a glob.
//
// TestUCXReasons holds it to the variables of UCX 1.13, and cmd/ucx_info to the rows that it names.
var ucxUnused = []struct{ reason, names string }{
	// Transports that goucx does not have.
	{"goucx has no tcp transport; between hosts UCX_TLS=rc,ud runs over UDP", "TCP_*"},
	{"goucx has no dc transport; UCX_TLS=rc or ud serves many peers", "DC_*"},
	{"goucx has no connection manager: programs exchange the addresses of their workers", `RDMA_CM_* CM_* LISTENER_BACKLOG
		SOCKADDR_* SA_DATA_VERSION`},
	{"the shm transport itself copies from and to memory of another process; that needs no settings", "CMA_* SCOPY_* KNEM_* XPMEM_*"},
	{"goucx has no support for accelerator memory", `CUDA_* EFA_* GDR_COPY_* GGA_* ROCM_* ZE_* ACC_DEVICES MEMTYPE_* SELECT_DISTANCE_MD
		RNDV_MEMTYPE_* RNDV_FRAG_MEM_* RNDV_FRAG_ALLOC_COUNT RNDV_PIPELINE_* IB_GPU_DIRECT_RDMA MEM_CUDA_* REG_NONBLOCK_MEM_TYPES`},

	// The process.
	{"a log line is not filtered by its source file", "LOG_FILE_FILTER"},
	{"a log line has no longest length, and shows no payload", "LOG_BUFFER LOG_DATA_SIZE"},
	{"log files are not rotated; logrotate does that", "LOG_FILE_SIZE LOG_FILE_ROTATE"},
	{"it is for the developers of UCX", "LOG_PRINT_ENABLE MODULE_LOG_LEVEL MEM_LOG_LEVEL"},
	{"the Go runtime handles signals and prints the stacks; GOTRACEBACK sets how", `LOG_LEVEL_TRIGGER HANDLE_ERRORS ERROR_*
		GDB_COMMAND DEBUG_SIGNO`},
	{"timers run on a goroutine, without signals and with any number of events", "ASYNC_*"},
	{"memory and profiles are those of Go: runtime/pprof", "MEMTRACK_* PROFILE_*"},
	{"UCX_STATS_DEST and ucx_info --live show the state of a running program", "VFS_* STATS_*"},
	{"transports are linked into the program", "MODULE_DIR MODULES"},
	{"copies are those of the Go runtime", "BUILTIN_MEMCPY_*"},
	{"nothing needs hooks in malloc and mmap: there is no registration cache", "MEM_*"},
	{"there is no registration cache: UCX_ZCOPY_THRESH says when memory is registered for one transfer", `RCACHE_* IB_RCACHE_*
		IB_REG_METHODS`},

	// Choice of transports and lanes.
	{"the distance between devices and CPUs is not part of a lane's cost", "TOPO_PRIO DISTANCE_* IB_PREFER_NEAREST_DEVICE"},
	{"a lane's cost has no setting; ucx_info --why and ucx_info -d show it", `BCOPY_BW PREFER_OFFLOAD RNDV_PERF_DIFF PROTO_OVERHEAD SM_BW *_SEND_OVERHEAD
		*_RECV_OVERHEAD MM_BW SYSV_BW POSIX_BW IB_PCI_BW IB_ETH_PAUSE_ON IB_MEM_REG_OVERHEAD IB_MEM_REG_GROWTH IB_DEVICE_SPECS`},
	{"a message takes one lane, and an operation one device", `MAX_EAGER_* MAX_RNDV_* MAX_RMA_* MULTI_LANE_MAX_RATIO MULTI_PATH_RATIO
		MIN_RNDV_CHUNK_SIZE MIN_RMA_CHUNK_SIZE RNDV_ALIGN_THRESH SINGLE_NET_DEVICE *_NUM_PATHS`},
	{"transports are not chosen by the number of peers: idle connections are suspended, see UCX_MAX_LIVE_CONNECTIONS", `NUM_EPS
		NUM_PPN MAX_NUM_EPS *_MAX_NUM_EPS MAX_PRIORITY_EPS DYNAMIC_TL_*`},
	{"wrong names in UCX_TLS are an error, and missing devices are shown by ucx_info --why", "WARN_INVALID_CONFIG"},
	{"each peer may have other transports and devices; its address is always read", "UNIFIED_MODE WIREUP_VIA_AM_LANE CONNECT_ALL_TO_ALL"},

	// Protocols.
	{"there is one set of protocols; ucx_info -e shows it", "PROTO_* PROTOS RECOVERY_RETRIES"},
	{"the receiver reads the data where the transport can, else it comes in fragments of the transport's size", `RNDV_SCHEME RNDV_FRAG_SIZE
		RNDV_PUT_FORCE_FLUSH RMA_ZCOPY_MAX_SEG_SIZE RKEY_PTR_SEG_SIZE`},
	{"UCX_RNDV_THRESH is the one threshold of rendezvous, and is not computed", "RNDV_SEND_NBR_THRESH RNDV_THRESH_FALLBACK"},
	{"a transport's limits say up to which length a message is copied at once; ucx_info -d shows them", "BCOPY_THRESH *_MAX_SHORT *_MAX_BCOPY"},
	{"atomics are those of the transport where it has them, and emulated otherwise", "ATOMIC_MODE IB_INDIRECT_ATOMIC"},
	{"addresses are in goucx's own format, and hold no names", "ADDRESS_* MAX_WORKER_ADDRESS_NAME MAX_WORKER_NAME"},
	{"goroutines that wait on a worker pass its progress to each other; no lock is to be chosen", "USE_MT_MUTEX"},
	{"each transport has its own buffers: UCX_SELF_SEG_SIZE, UCX_RC_SEG_SIZE, UCX_SHM_RING_SIZE", "SEG_SIZE RX_MPOOL_SIZES"},
	{"tags are matched in software", "TM_* *_TM_* "},
	{"a flush of a worker waits for what was posted before it", "FLUSH_WORKER_EPS"},
	{"the number of connections that get keepalives has no limit", "KEEPALIVE_NUM_EPS"},
	{"the protocols need no ids of remote endpoints", "RESOLVE_REMOTE_EP_ID"},
	{"remote keys need no pool", "RKEY_MPOOL_MAX_MD"},
	{"a fence has one mode", "FENCE_MODE *_FENCE"},

	// Memory.
	{"memory is from the Go heap, or mapped by the transport", "ALLOC ALLOC_PRIO *_ALLOC *_HUGETLB_MODE *_FIFO_HUGETLB"},
	{"memory is registered at once, by one call and for all of it", "GVA_* IB_REG_MT_* IB_ODP_* IB_FORK_INIT IB_MAX_IDLE_RKEY_COUNT IB_PCI_RELAXED_ORDERING"},

	// Shared memory and self.
	{"a failure is reported to the program as an error, whatever the log level", "FAILURE *_FAILURE"},
	{"a worker has one self device", "SELF_NUM_DEVICES"},
	{"memory is shared by passing its descriptor, without a file", "POSIX_DIR POSIX_USE_PROC_LINK"},
	{"a ring grows as needed, between UCX_SHM_RING_SIZE and UCX_SHM_RING_MAX_SIZE", "MM_* SYSV_* POSIX_*"},

	// Verbs.
	{"the software RNIC has no such hardware", `IB_MLX5_* *_DM_SIZE *_DM_COUNT *_MMIO_MODE *_CQE_ZIPPING_ENABLE *_COMPACT_AV *_AR_ENABLE *_TX_MAX_BB
		IB_ASYNC_EVENTS`},
	{"a peer without receives is slow, not dead: rc retries without limit", "*_RNR_TIMEOUT *_RNR_RETRY_COUNT"},
	{"rc has no flow control of its own; UCX_RNDV_OUTSTANDING and UCX_UNEXPECTED_BUDGET limit what is sent", "*_FC_*"},
	{"the address of the device decides; UCX_NET_DEVICES, UCX_SOFT_ADDR and UCX_IB_GID_INDEX choose it", `*_GID_INDEX IB_SUBNET_PREFIX *_ADDR_TYPE *_IS_GLOBAL
		*_LID_PATH_BITS *_ROCE_*`},
	{"it is the same for rc and ud: UCX_IB_PKEY, UCX_IB_SL and UCX_IB_TRAFFIC_CLASS set it for RDMA devices", "*_PKEY *_SL *_TRAFFIC_CLASS"},
	{"packets are sent with the defaults of the host's IP stack", "*_HOP_LIMIT"},
	{"the port and the peer decide; UCX_SOFT_MTU sets it for the software RNIC", "*_PATH_MTU"},
	{"the device decides; UCX_SOFT_MAX_RD_ATOMIC sets it for the software RNIC", "*_MAX_RD_ATOMIC"},
	{"the device decides; UCX_SOFT_MAX_INLINE sets it for the software RNIC", "*_TX_MIN_INLINE *_TX_INLINE_RESP *_RX_INLINE *_TX_MIN_SGE"},
	{"there are as many send buffers from the start as UCX_RC_TX_BUFS and UCX_UD_TX_QUEUE_LEN say", "*_TX_MAX_BUFS *_TX_BUFS_GROW"},
	{"there are as many receive buffers from the start as UCX_RC_RX_QUEUE_LEN and UCX_UD_RX_QUEUE_LEN say", "*_RX_MAX_BUFS *_RX_BUFS_GROW *_RX_QUEUE_LEN_INIT"},
	{"how much is posted and polled at once is fixed", `*_MAX_BATCH *_MAX_POLL *_TX_POLL_ALWAYS *_TX_CQ_MODERATION *_TX_CQ_LEN *_TX_MAX_WR
		*_LOG_ACK_REQ_FREQ *_SRQ_TOPO *_FLUSH_MODE *_MAX_AM_HDR`},
	{"a get waits for room in the send queue, UCX_RC_TX_QUEUE_LEN, and has no limit of its own", "*_MAX_GET_ZCOPY *_TX_NUM_GET_*"},
	{"measured round trips and losses set the pace of retransmissions", "*_EXP_BACKOFF *_TIMER_BACKOFF *_ASYNC_TIMER_TICK *_MIN_POKE_TIME"},
	{"the longest ud message is what a packet holds; UCX_SOFT_MTU sets it", "UD_*SEG_SIZE"},
	{"a datagram for another address does not reach the socket", "*_ETH_DGID_CHECK"},
}

// reasonUnused returns why goucx does not use a name of UCX.
func reasonUnused(name string) string {
	for _, u := range ucxUnused {
		for pattern := range strings.FieldsSeq(u.names) {
			if glob(pattern, name) {
				return u.reason
			}
		}
	}
	return "goucx has nothing that it would set"
}

// Unused is a setting of UCX that a source sets and goucx does not use.
type Unused struct {
	Name   string // with UCX_
	Text   string // the value, in one printable line
	Origin Origin
	Reason string // why goucx does not use it
	Fault  string // why UCX refuses the value too, or ""
	// ForHost: it stands in a section of ucx.conf for hosts of a kind. UCX comes with such
	// sections, which tune it, so they are no reason to warn.
	ForHost bool
}

// String returns the name with its value and origin.
func (u Unused) String() string {
	origin := u.Origin.String()
	if u.Origin.Kind == Env {
		origin = "environment"
	}
	if u.Fault != "" {
		origin += "; " + u.Fault
	}
	return fmt.Sprintf("%s=%s (%s)", u.Name, u.Text, origin)
}

// Unused returns the settings of UCX that goucx does not use and whose value is not UCX's default,
// sorted by name. A value whose default is not known counts as another.
func (s *Set) Unused() (out []Unused) {
	if s == nil {
		return nil
	}
	for _, e := range s.entries {
		if s.known(e.name) || !knownToUCX(e.name) {
			continue
		}
		vars := ucxNames()[e.name]
		same, fault := len(vars) > 0, ""
		for _, v := range vars {
			is, err := v.isDefault(e.text)
			if same = same && is; err != nil {
				fault = err.Error()
			}
		}
		if !same {
			out = append(out, Unused{Prefix + e.name, printable(e.text), e.origin, reasonUnused(e.name), fault, e.filtered})
		}
	}
	slices.SortFunc(out, func(a, b Unused) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// checkUnused reports the settings of UCX that goucx does not use: as one warning or, in strict mode,
// as an error each.
func (s *Set) checkUnused(src *sources, strict bool) {
	names := map[bool][]string{} // by ForHost
	for _, u := range s.Unused() {
		if strict && !u.ForHost {
			src.fail(fmt.Errorf("goucx does not use %s: %s", u, u.Reason))
			continue
		}
		names[u.ForHost] = append(names[u.ForHost], u.String())
	}
	const why = "settings of UCX that goucx does not use: %s; ucx_info --why has the reasons"
	if texts := names[false]; len(texts) > 0 && WarnUnused.Get(s) {
		src.warn(why+"; %s%s=n hides this line", strings.Join(texts, ", "), Prefix, WarnUnused.Name())
	}
	if texts := names[true]; len(texts) > 0 {
		src.warnings = append(src.warnings, Warning{Text: fmt.Sprintf(why, strings.Join(texts, ", ")), Info: true})
	}
}

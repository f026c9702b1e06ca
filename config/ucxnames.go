package config

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// ucxList holds the variables of UCX 1.13: NAME=default, and behind a tab the wider names that the
// variable inherits. The comment above a group is the syntax of its values.
//
// Source: `ucx_info -c -f` of UCX 1.13.1, without its texts.
//
//go:embed ucx-1.13.txt
var ucxList string

// ucxVariable is a variable of UCX 1.13.
type ucxVariable struct {
	name, def, syntax string
	wider             []string // names whose value it inherits, the nearest first
}

// ucxVariables returns the variables of UCX 1.13 in its order.
var ucxVariables = sync.OnceValue(func() []ucxVariable { return parseUCXList(ucxList) })

func parseUCXList(text string) (vars []ucxVariable) {
	syntax := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if s, ok := strings.CutPrefix(line, "# "); ok {
			syntax = s
			continue
		}
		line, wider, _ := strings.Cut(line, "\t")
		name, def, _ := strings.Cut(line, "=")
		vars = append(vars, ucxVariable{name, def, syntax, strings.Fields(wider)})
	}
	return vars
}

// ucxOther lists names of later releases, and names that UCX 1.13 reads and no longer shows. Each
// of names is combined with each of prefixes. Their defaults are not known here.
var ucxOther = []struct{ prefixes, names string }{
	{"", `CONNECT_ALL_TO_ALL DISTANCE_BW DISTANCE_LAT DYNAMIC_TL_PROGRESS_FACTOR DYNAMIC_TL_SWITCH_INTERVAL
		FENCE_MODE GVA_ENABLE GVA_MLOCK GVA_PREFETCH MAX_EAGER_LANES MAX_PRIORITY_EPS MAX_RMA_LANES MAX_RMA_RAILS
		MAX_RNDV_LANES MAX_WORKER_NAME MEM_CUDA_RELOC MIN_RMA_CHUNK_SIZE MIN_RNDV_CHUNK_SIZE MULTI_PATH_RATIO
		PREFER_OFFLOAD PROTO_INFO_DIR PROTO_OVERHEAD PROTO_REQUEST_RESET RECOVERY_RETRIES REG_NONBLOCK_MEM_TYPES
		RMA_ZCOPY_MAX_SEG_SIZE RNDV_ALIGN_THRESH RNDV_FRAG_MEM_TYPES RNDV_PIPELINE_ERROR_HANDLING
		SINGLE_NET_DEVICE SOCKADDR_AUX_TLS STATS_DEST STATS_FILTER STATS_FORMAT STATS_TRIGGER VFS_SOCK_PATH
		WIREUP_VIA_AM_LANE`},
	{"IB_ RC_ RC_VERBS_ RC_MLX5_ UD_ UD_VERBS_ UD_MLX5_ DC_ DC_MLX5_", `GID_INDEX MAX_BCOPY MAX_SHORT
		ROCE_REACHABILITY_MODE SEND_OVERHEAD`},
	{"RC_ RC_VERBS_ RC_MLX5_ DC_ DC_MLX5_", `TM_MAX_BCOPY TX_NUM_GET_OPS`},
	{"MM_ POSIX_ SYSV_", `MAX_BCOPY MAX_SHORT RECV_OVERHEAD SEND_OVERHEAD`},
	{"SELF_ TCP_ CMA_", `MAX_BCOPY MAX_SHORT`},
	{"IB_", `ODP_MEM_TYPES`},
	{"TCP_", `MAX_BW`},
}

// ucxOpenFamilies lists prefixes of which UCX has every name: accelerators, devices and kernel
// modules that goucx does not use.
var ucxOpenFamilies = []string{"CUDA_", "EFA_", "GDR_COPY_", "GGA_", "KNEM_", "ROCM_", "XPMEM_", "ZE_"}

// ucxNames maps each name of UCX to the variables that it sets: itself, or those that inherit it.
// For a name in ucxOther there are none.
var ucxNames = sync.OnceValue(func() map[string][]*ucxVariable {
	names := map[string][]*ucxVariable{}
	for _, f := range ucxOther {
		prefixes := strings.Fields(f.prefixes)
		if len(prefixes) == 0 {
			prefixes = []string{""}
		}
		for _, p := range prefixes {
			for n := range strings.FieldsSeq(f.names) {
				names[p+n] = nil
			}
		}
	}
	for i := range ucxVariables() {
		v := &ucxVariables()[i]
		for _, n := range append(slices.Clone(v.wider), v.name) {
			names[n] = append(names[n], v)
		}
	}
	return names
})

func knownToUCX(name string) bool {
	_, ok := ucxNames()[name]
	return ok || slices.ContainsFunc(ucxOpenFamilies, func(p string) bool { return strings.HasPrefix(name, p) })
}

package verbs

import (
	"fmt"
	"strings"
)

// Names are those that libibverbs's *_str functions return, or else its constants.

var qpTypeNames = map[QPType]string{RC: "RC", UC: "UC", UD: "UD"}

// String returns the name of the constant.
func (t QPType) String() string { return nameOf(qpTypeNames, t, "qp type") }

var qpStateNames = [numQPStates]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the name of the constant.
func (s QPState) String() string { return nameAt(qpStateNames[:], s, "qp state") }

// String returns the payload in bytes.
func (m MTU) String() string {
	if n := m.Bytes(); n != 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("mtu %d", uint8(m))
}

var accessNames = []string{
	"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND", "ZERO_BASED", "ON_DEMAND", "HUGETLB",
	"FLUSH_GLOBAL", "FLUSH_PERSISTENT", 20: "RELAXED_ORDERING",
}

// String returns the flags by their constants: "LOCAL_WRITE|REMOTE_READ".
func (a Access) String() string { return flagNames(accessNames, uint32(a)) }

var opcodeNames = []string{
	"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP",
	"ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "BIND_MW", "SEND_WITH_INV",
}

// String returns the name of the constant.
func (o Opcode) String() string { return nameAt(opcodeNames, o, "opcode") }

var sendFlagNames = []string{"FENCE", "SIGNALED", "SOLICITED", "INLINE"}

// String returns the flags by their constants.
func (f SendFlags) String() string { return flagNames(sendFlagNames, uint32(f)) }

var wcOpcodeNames = map[WCOpcode]string{
	WCSend: "SEND", WCWrite: "RDMA_WRITE", WCRead: "RDMA_READ", WCCompareSwap: "COMP_SWAP", WCFetchAdd: "FETCH_ADD",
	WCBindMW: "BIND_MW", WCLocalInv: "LOCAL_INV", WCRecv: "RECV", WCRecvImm: "RECV_RDMA_WITH_IMM",
}

// String returns the name of the constant.
func (o WCOpcode) String() string { return nameOf(wcOpcodeNames, o, "completion opcode") }

var wcFlagNames = []string{"GRH", "WITH_IMM", 3: "WITH_INV"}

// String returns the flags by their constants.
func (f WCFlags) String() string { return flagNames(wcFlagNames, uint32(f)) }

var wcStatusNames = [numWCStatus]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "work request flushed error", "memory management operation error",
	"bad response error", "local access error", "remote invalid request error", "remote access error",
	"remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
	"local RDD violation error", "remote invalid RD request", "aborted error", "invalid EE context number",
	"invalid EE context state", "fatal error", "response timeout error", "general error",
}

// String returns what ibv_wc_status_str returns.
func (s WCStatus) String() string { return nameAt(wcStatusNames[:], s, "completion status") }

var eventNames = []string{
	"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
	"local access violation work queue error", "communication established", "send queue drained", "path migrated",
	"path migration request error", "local catastrophic error", "port active", "port error", "lid change",
	"P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached",
	"client reregistration", "GID table change", "WQ fatal",
}

// String returns what ibv_event_type_str returns.
func (e EventType) String() string { return nameAt(eventNames, e, "event") }

var portStateNames = []string{"no state change (NOP)", "down", "init", "armed", "active", "active defer"}

// String returns what ibv_port_state_str returns.
func (s PortState) String() string { return nameAt(portStateNames, s, "port state") }

var atomicCapNames = []string{"NONE", "HCA", "GLOB"}

// String returns the name of the constant.
func (c AtomicCap) String() string { return nameAt(atomicCapNames, c, "atomic capability") }

var linkLayerNames = []string{"UNSPECIFIED", "INFINIBAND", "ETHERNET"}

// String returns the name of the constant.
func (l LinkLayer) String() string { return nameAt(linkLayerNames, l, "link layer") }

var attrNames = []string{
	"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV", "PATH_MTU",
	"TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER", "SQ_PSN",
	"MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN", 31: "PEER_FEATURES",
}

// String returns the attributes by their constants: "PKEY_INDEX|PORT".
func (m AttrMask) String() string { return flagNames(attrNames, uint32(m)) }

// nameAt returns names[v], or what and the number if there is none.
func nameAt[T ~uint8](names []string, v T, what string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s %d", what, uint8(v))
}

func nameOf[T ~uint8](names map[T]string, v T, what string) string {
	if n := names[v]; n != "" {
		return n
	}
	return fmt.Sprintf("%s %d", what, uint8(v))
}

// flagNames returns the names of the bits of v, and the other bits as a number.
func flagNames(names []string, v uint32) string {
	var list []string
	for i, n := range names {
		if bit := uint32(1) << i; n != "" && v&bit != 0 {
			list = append(list, n)
			v &^= bit
		}
	}
	if v != 0 || len(list) == 0 {
		list = append(list, fmt.Sprintf("%#x", v))
	}
	return strings.Join(list, "|")
}

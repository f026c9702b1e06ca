package transports

import (
	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/verbs/ibv"
)

// Settings of RDMA devices. Package ibv reads no settings: IBVConfig translates them to ibv.Config.
var (
	ibGIDIndex = config.New("IB_GID_INDEX", "auto", config.OrAuto(config.Int(0, 255)), "",
		"Entry of the GID table that a port of an RDMA device uses. auto: RoCE v2; routable addresses before link-local ones, IPv4 before IPv6.")
	ibTrafficClass = config.New("IB_TRAFFIC_CLASS", "auto", config.OrAuto(config.Int(0, 255)), "",
		"Traffic class of packets of RDMA devices: DSCP and ECN, from which switches choose the priority. auto: 0.")
	ibSL = config.New("IB_SL", "auto", config.OrAuto(config.Int(0, 15)), "",
		"Service level of packets of RDMA devices; on RoCE, priority of tagged VLAN frames. auto: 0.")
	ibPKey = config.New("IB_PKEY", "auto", config.OrAuto(config.Int(1, 0xffff)), "",
		"Partition key that a port of an RDMA device uses. auto: the first full one of its table.")
)

// ibvSettings are the settings that IBVConfig reads.
var ibvSettings = config.Table{Section: "RDMA devices", Settings: []config.Setting{ibGIDIndex, ibTrafficClass, ibSL, ibPKey}}

// IBVConfig returns the configuration of RDMA devices according to the settings.
func IBVConfig(s *config.Set) ibv.Config {
	index := ibGIDIndex.Get(s)
	return ibv.Config{
		GIDIndex: index.Value, HasGIDIndex: !index.Auto, TrafficClass: uint8(ibTrafficClass.Get(s).Value),
		SL: uint8(ibSL.Get(s).Value), PKey: uint16(ibPKey.Get(s).Value),
	}
}

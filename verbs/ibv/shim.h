// The C side of package ibv: see doc.go. The structs mirror verbs.SendWR, RecvWR and WC;
// layout_unsafe.go compares sizes and offsets when it is compiled.
#ifndef GOUCX_IBV_SHIM_H
#define GOUCX_IBV_SHIM_H

#include <stdint.h>
#include <infiniband/verbs.h>

#define GOUCX_MAX_SGE 4
#define GOUCX_INLINE_LEN 64

struct goucx_sge {
	uint64_t addr;
	uint32_t len;
	uint32_t lkey;
};

struct goucx_send_wr {
	uint64_t id;
	uint8_t op, flags, num_sg, inline_len;
	uint32_t imm;
	uint64_t remote;
	uint32_t rkey;
	uint32_t qpn, qkey, ah;
	uint64_t compare, swap;
	struct goucx_sge sg[GOUCX_MAX_SGE];
	uint8_t data[GOUCX_INLINE_LEN];
};

struct goucx_recv_wr {
	uint64_t id;
	uint8_t num_sg;
	struct goucx_sge sg[GOUCX_MAX_SGE];
};

struct goucx_wc {
	uint64_t id;
	uint8_t status, op, flags;
	uint32_t len, imm, qpn, src_qp;
	uint16_t slid, pkey_index;
	uint32_t vendor_err;
};

// Address handles by number. Chunks are allocated once and never move, so that posts look
// handles up without a lock. The Go side serialises changes.
#define GOUCX_AH_CHUNK 1024
#define GOUCX_AH_CHUNKS 1024

struct goucx_ah_slot {
	struct ibv_ah *ah;   // NULL: free
	const void *domain;  // the protection domain of the handle
	uint32_t id;
};

struct goucx_ahs {
	struct goucx_ah_slot *chunks[GOUCX_AH_CHUNKS];
};

// A gate keeps posts and polls out of an object that is closed: libibverbs must not be called with it.
// Unless one thread at a time uses the object, a post or poll holds the gate's lock, as it holds
// one of the provider's. It counts the calls.
struct goucx_gate {
	uint32_t lock;
	uint8_t single;          // one thread at a time uses the object: no lock
	volatile uint8_t closed;
	volatile uint64_t calls;
};

// What a post needs of a queue pair. This struct and the next two are Go memory. They outlive the
// object, and hold no Go pointer.
struct goucx_qp {
	struct goucx_gate gate;
	struct ibv_qp *qp;
	struct goucx_ahs *ahs;
	const void *domain;
	uint32_t max_inline;
	uint32_t ops;                        // bit per verbs.Opcode
	uint8_t max_send_sge, max_recv_sge;
	uint8_t datagrams;                   // type UD
	volatile uint8_t can_send, can_recv; // the state permits posts
	volatile uint8_t gone;               // the device was removed or has failed
};

struct goucx_cq {
	struct goucx_gate gate;
	struct ibv_cq *cq;
	volatile uint8_t gone; // as in goucx_qp
};

struct goucx_srq {
	struct goucx_gate gate;
	struct ibv_srq *srq;
	volatile uint8_t gone; // as in goucx_qp
	uint32_t max_sge;
};

// Results of a post and of a poll: requests that were posted, the error number of the next one;
// completions, or -1. A C function of type void is cheaper to call from Go than one with a result.
struct goucx_result {
	uint32_t posted;
	int32_t err;
	int32_t polled;
};

// The objects are passed as addresses, of which cgo checks nothing.
void goucx_post_send(uintptr_t q, struct goucx_send_wr *wrs, uint32_t n, struct goucx_result *r);
void goucx_post_recv(uintptr_t q, struct goucx_recv_wr *wrs, uint32_t n, struct goucx_result *r);
void goucx_post_srq_recv(uintptr_t s, struct goucx_recv_wr *wrs, uint32_t n, struct goucx_result *r);
void goucx_poll(uintptr_t c, struct goucx_wc *wcs, uint32_t n, struct goucx_result *r);
void goucx_post_send_poll(uintptr_t q, struct goucx_send_wr *wrs, uint32_t n,
			  uintptr_t c, struct goucx_wc *wcs, uint32_t m, struct goucx_result *r);
void goucx_close_gate(struct goucx_gate *g);
void goucx_quiesce(struct goucx_gate *g);

// A provider that does nothing, to measure the crossing: a queue pair that takes all requests, and a
// queue that is empty or always full. goucx_nothing is an empty call.
void goucx_nothing(void);
struct ibv_qp *goucx_stub_qp(void);
struct ibv_cq *goucx_stub_cq(int full);
void goucx_stub_free(struct ibv_qp *q, struct ibv_cq *empty, struct ibv_cq *full);

struct ibv_device **goucx_device_list(int *n);
struct ibv_device *goucx_device_at(struct ibv_device **list, int i);
int goucx_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a);
int goucx_query_gid(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e);
int goucx_query_gids(struct ibv_context *c, struct ibv_gid_entry *es, uint32_t n);
struct ibv_mr *goucx_reg_mr(struct ibv_pd *pd, uintptr_t addr, uint64_t len, uint64_t iova, uint32_t access);
int goucx_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, uintptr_t addr, uint64_t len, uint32_t access);
struct ibv_mw *goucx_alloc_mw(struct ibv_pd *pd, int type);
int goucx_dealloc_mw(struct ibv_mw *mw);
int goucx_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, int type, uint64_t id, unsigned int flags,
		  struct ibv_mw_bind_info info, uint32_t *key);
struct ibv_cq *goucx_create_cq(struct ibv_context *c, int depth, uint64_t cookie, struct ibv_comp_channel *ch,
			       struct ibv_pd *domain, uint32_t flags);
int goucx_req_notify(struct goucx_cq *c, int solicited);
void goucx_moderation_caps(struct ibv_context *c, uint16_t *count, uint16_t *period_us);
int goucx_moderate(struct ibv_cq *c, uint16_t count, uint16_t period_us);
int goucx_nonblock(int fd);
int goucx_next_event(struct ibv_comp_channel *ch, uint64_t *cookie);
int goucx_next_async(struct ibv_context *c, struct ibv_async_event *e, void **object);
struct ibv_td *goucx_alloc_td(struct ibv_context *c);
int goucx_dealloc_td(struct ibv_td *td);
struct ibv_pd *goucx_parent_domain(struct ibv_context *c, struct ibv_pd *pd, struct ibv_td *td);
struct goucx_ahs *goucx_ahs_new(void);
void goucx_ahs_free(struct goucx_ahs *t);
int goucx_ahs_set(struct goucx_ahs *t, uint32_t id, struct ibv_ah *ah, const void *domain);
void goucx_ahs_clear(struct goucx_ahs *t, uint32_t id);

#endif

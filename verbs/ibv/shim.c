//go:build linux && cgo && ibverbs

#include "shim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// Requests and completions that one call of the provider takes.
#define CHUNK 64

// lock spins for a moment and then offers the processor: the holder may have none.
static void lock_slow(uint32_t *lock)
{
	for (uint32_t i = 0; __atomic_load_n(lock, __ATOMIC_RELAXED) || __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); i++)
		if (i % 64 == 63)
			sched_yield();
}

// enter begins a call, unless the object is closed.
static inline int enter(struct goucx_gate *g)
{
	if (!g->single && __builtin_expect(__atomic_exchange_n(&g->lock, 1, __ATOMIC_ACQUIRE), 0))
		lock_slow(&g->lock);
	if (__builtin_expect(g->closed, 0)) {
		__atomic_store_n(&g->lock, 0, __ATOMIC_RELEASE);
		return 0;
	}
	g->calls++;
	return 1;
}

static inline void leave(struct goucx_gate *g)
{
	if (!g->single)
		__atomic_store_n(&g->lock, 0, __ATOMIC_RELEASE);
}

// goucx_close_gate returns when no call is inside; none is later. The program excludes calls on
// an object that one thread at a time uses.
void goucx_close_gate(struct goucx_gate *g)
{
	lock_slow(&g->lock);
	g->closed = 1;
	__atomic_store_n(&g->lock, 0, __ATOMIC_RELEASE);
}

// goucx_quiesce returns when the calls that were inside have ended.
void goucx_quiesce(struct goucx_gate *g)
{
	lock_slow(&g->lock);
	__atomic_store_n(&g->lock, 0, __ATOMIC_RELEASE);
}

static int positive(int err) { return err < 0 ? -err : err; }

static struct ibv_ah *find_ah(const struct goucx_qp *q, uint32_t id)
{
	uint32_t index = id & (GOUCX_AH_CHUNK * GOUCX_AH_CHUNKS - 1);
	struct goucx_ah_slot *chunk = __atomic_load_n(&q->ahs->chunks[index / GOUCX_AH_CHUNK], __ATOMIC_ACQUIRE);
	if (!chunk)
		return NULL;
	struct goucx_ah_slot *s = &chunk[index % GOUCX_AH_CHUNK];
	struct ibv_ah *ah = __atomic_load_n(&s->ah, __ATOMIC_ACQUIRE);
	return ah && s->id == id && s->domain == q->domain ? ah : NULL;
}

_Static_assert(sizeof(struct goucx_sge) == sizeof(struct ibv_sge) &&
	       offsetof(struct goucx_sge, len) == offsetof(struct ibv_sge, length) &&
	       offsetof(struct goucx_sge, lkey) == offsetof(struct ibv_sge, lkey), "pieces are passed as they are");

// length returns the sum of the pieces, which may exceed 32 bits. Providers add them in 32 bits, so that such
// an inline request would pass their check and be copied beyond the send queue.
static uint64_t length(const struct goucx_send_wr *w)
{
	uint64_t n = 0;
	for (int i = 0; i < w->num_sg; i++)
		n += w->sg[i].len;
	return n;
}

// fill_inline has the bytes of an inline request sent that it holds itself, or else its pieces.
static int fill_inline(uint32_t most, struct goucx_send_wr *w, struct ibv_send_wr *s, struct ibv_sge *sg)
{
	uint64_t len = length(w);
	if (!w->num_sg && w->inline_len) {
		if (w->inline_len > GOUCX_INLINE_LEN)
			return EINVAL;
		sg->addr = (uintptr_t)w->data;
		len = sg->length = w->inline_len;
		s->sg_list = sg;
		s->num_sge = 1;
	}
	return len > most ? EINVAL : 0;
}

// fill translates one request; an errno if it is malformed. Providers differ in what they
// check, and in the errno that they return for it. q's fields are parameters where writes to s could
// seem to change them.
static inline int fill(const struct goucx_qp *q, uint32_t ops, uint8_t max_sge, uint8_t datagrams,
		       struct goucx_send_wr *w, struct ibv_send_wr *s, struct ibv_sge *sg)
{
	uint8_t op = w->op, flags = w->flags;
	if (op >= 32 || !(ops >> op & 1) || w->num_sg > max_sge)
		return EINVAL;
	s->wr_id = w->id;
	s->sg_list = (struct ibv_sge *)w->sg;
	s->num_sge = w->num_sg;
	s->opcode = op;
	s->send_flags = flags;
	if (flags & IBV_SEND_INLINE && fill_inline(q->max_inline, w, s, sg))
		return EINVAL;
	if (datagrams) {
		s->imm_data = htonl(w->imm);
		s->wr.ud.ah = find_ah(q, w->ah);
		s->wr.ud.remote_qpn = w->qpn;
		s->wr.ud.remote_qkey = w->qkey;
		return s->wr.ud.ah ? 0 : EINVAL;
	}
	switch (op) {
	case IBV_WR_SEND_WITH_IMM:
		s->imm_data = htonl(w->imm);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		s->imm_data = htonl(w->imm);
		// fallthrough
	case IBV_WR_RDMA_WRITE:
		s->wr.rdma.remote_addr = w->remote;
		s->wr.rdma.rkey = w->rkey;
		break;
	case IBV_WR_RDMA_READ:
		if (flags & IBV_SEND_INLINE)
			return EINVAL;
		s->wr.rdma.remote_addr = w->remote;
		s->wr.rdma.rkey = w->rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		if (flags & IBV_SEND_INLINE || length(w) != 8)
			return EINVAL;
		s->wr.atomic.remote_addr = w->remote;
		s->wr.atomic.rkey = w->rkey;
		s->wr.atomic.compare_add = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? w->swap : w->compare;
		s->wr.atomic.swap = w->swap;
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		s->invalidate_rkey = w->imm;
		break;
	}
	return 0;
}

// post_send posts requests in lists of up to CHUNK. The caller is inside the gate.
static inline void post_send(struct goucx_qp *q, struct goucx_send_wr *wrs, uint32_t n, struct goucx_result *r)
{
	struct ibv_send_wr list[CHUNK], *bad;
	struct ibv_sge sg[CHUNK]; // of requests that hold their bytes
	uint32_t done = 0, ops = q->ops;
	uint8_t max_sge = q->max_send_sge, datagrams = q->datagrams;
	int err = 0;

	if (n && !q->can_send)
		err = q->gone ? EIO : EINVAL;

	while (done < n && !err) {
		uint32_t k, most = n - done < CHUNK ? n - done : CHUNK;
		int malformed = 0;
		for (k = 0; k < most; k++) {
			malformed = fill(q, ops, max_sge, datagrams, &wrs[done + k], &list[k], &sg[k]);
			if (malformed)
				break;
			list[k].next = &list[k + 1];
		}
		if (k) {
			list[k - 1].next = NULL;
			err = positive(ibv_post_send(q->qp, list, &bad));
			done += err ? (uint32_t)(bad - list) : k;
		}
		if (!err)
			err = malformed;
	}
	r->posted = done;
	r->err = err;
}

void goucx_post_send(uintptr_t at, struct goucx_send_wr *wrs, uint32_t n, struct goucx_result *r)
{
	struct goucx_qp *q = (struct goucx_qp *)at;
	if (!enter(&q->gate)) {
		r->posted = 0;
		r->err = EBADF;
		return;
	}
	post_send(q, wrs, n, r);
	leave(&q->gate);
}

// receives translates up to CHUNK receives and returns how many are well-formed.
static inline uint32_t receives(struct ibv_recv_wr *list, struct goucx_recv_wr *wrs, uint32_t n, uint32_t max_sge)
{
	uint32_t k;
	for (k = 0; k < n && wrs[k].num_sg <= max_sge; k++) {
		list[k].wr_id = wrs[k].id;
		list[k].sg_list = (struct ibv_sge *)wrs[k].sg;
		list[k].num_sge = wrs[k].num_sg;
		list[k].next = &list[k + 1];
	}
	if (k)
		list[k - 1].next = NULL;
	return k;
}

// post_receives posts to the receive queue of qp, or to s if qp is NULL.
static inline void post_receives(struct ibv_qp *qp, struct ibv_srq *s, struct goucx_recv_wr *wrs, uint32_t n,
				 uint32_t max_sge, struct goucx_result *r)
{
	struct ibv_recv_wr list[CHUNK], *bad;
	uint32_t done = 0;
	int err = 0;

	while (done < n && !err) {
		uint32_t most = n - done < CHUNK ? n - done : CHUNK;
		uint32_t k = receives(list, wrs + done, most, max_sge);
		if (k) {
			err = positive(qp ? ibv_post_recv(qp, list, &bad) : ibv_post_srq_recv(s, list, &bad));
			done += err ? (uint32_t)(bad - list) : k;
		}
		if (!err && k < most)
			err = EINVAL;
	}
	r->posted = done;
	r->err = err;
}

void goucx_post_recv(uintptr_t at, struct goucx_recv_wr *wrs, uint32_t n, struct goucx_result *r)
{
	struct goucx_qp *q = (struct goucx_qp *)at;
	r->posted = 0;
	r->err = EBADF;
	if (!enter(&q->gate))
		return;
	if (n)
		r->err = q->gone ? EIO : EINVAL;
	else
		r->err = 0;
	if (q->can_recv)
		post_receives(q->qp, NULL, wrs, n, q->max_recv_sge, r);
	leave(&q->gate);
}

void goucx_post_srq_recv(uintptr_t at, struct goucx_recv_wr *wrs, uint32_t n, struct goucx_result *r)
{
	struct goucx_srq *s = (struct goucx_srq *)at;
	r->posted = 0;
	r->err = EBADF;
	if (!enter(&s->gate))
		return;
	r->err = EIO;
	if (!s->gone)
		post_receives(NULL, s->srq, wrs, n, s->max_sge, r);
	leave(&s->gate);
}

// poll takes completions in chunks. The caller is inside the gate.
static inline int32_t poll(struct ibv_cq *c, struct goucx_wc *wcs, uint32_t n)
{
	struct ibv_wc list[CHUNK];
	uint32_t done = 0;

	while (done < n) {
		int most = n - done < CHUNK ? (int)(n - done) : CHUNK;
		int k = ibv_poll_cq(c, most, list);
		if (k < 0)
			return done ? (int32_t)done : -1;
		for (int i = 0; i < k; i++) {
			const struct ibv_wc *s = &list[i];
			struct goucx_wc *w = &wcs[done + i];
			w->id = s->wr_id;
			w->status = s->status;
			w->op = s->opcode;
			w->flags = s->wc_flags;
			w->len = s->byte_len;
			w->imm = s->wc_flags & IBV_WC_WITH_IMM ? ntohl(s->imm_data) : s->invalidated_rkey;
			w->qpn = s->qp_num;
			w->src_qp = s->src_qp;
			w->slid = 0; // RoCE has no LIDs
			w->pkey_index = s->pkey_index;
			w->vendor_err = s->vendor_err;
		}
		done += k;
		if (k < most)
			break;
	}
	return (int32_t)done;
}

void goucx_poll(uintptr_t at, struct goucx_wc *wcs, uint32_t n, struct goucx_result *r)
{
	struct goucx_cq *c = (struct goucx_cq *)at;
	r->polled = -1;
	if (!enter(&c->gate))
		return;
	r->polled = poll(c->cq, wcs, n);
	if (!r->polled && c->gone)
		r->polled = -1;
	leave(&c->gate);
}

void goucx_post_send_poll(uintptr_t q, struct goucx_send_wr *wrs, uint32_t n,
			  uintptr_t c, struct goucx_wc *wcs, uint32_t m, struct goucx_result *r)
{
	goucx_post_send(q, wrs, n, r);
	goucx_poll(c, wcs, m, r);
}

struct ibv_device **goucx_device_list(int *n) { return ibv_get_device_list(n); }

struct ibv_device *goucx_device_at(struct ibv_device **list, int i) { return list[i]; }

int goucx_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a) { return ibv_query_port(c, port, a); }

int goucx_query_gid(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e)
{
	return ibv_query_gid_ex(c, port, index, e, 0);
}

int goucx_query_gids(struct ibv_context *c, struct ibv_gid_entry *es, uint32_t n)
{
	return (int)ibv_query_gid_table(c, es, n, 0);
}

struct ibv_mr *goucx_reg_mr(struct ibv_pd *pd, uintptr_t addr, uint64_t len, uint64_t iova, uint32_t access)
{
	return ibv_reg_mr_iova(pd, (void *)addr, len, iova, access);
}

int goucx_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, uintptr_t addr, uint64_t len, uint32_t access)
{
	return ibv_rereg_mr(mr, flags, pd, (void *)addr, len, access);
}

struct ibv_mw *goucx_alloc_mw(struct ibv_pd *pd, int type) { return ibv_alloc_mw(pd, type); }

int goucx_dealloc_mw(struct ibv_mw *mw) { return ibv_dealloc_mw(mw); }

// A window of type 2 is bound by a request, and the program chooses the lower byte of its key.
int goucx_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, int type, uint64_t id, unsigned int flags,
		  struct ibv_mw_bind_info info, uint32_t *key)
{
	int err;
	if (type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind b = { .wr_id = id, .send_flags = flags, .bind_info = info };
		err = ibv_bind_mw(qp, mw, &b);
		*key = mw->rkey;
		return err;
	}
	struct ibv_send_wr *bad, w = { .wr_id = id, .opcode = IBV_WR_BIND_MW, .send_flags = flags };
	w.bind_mw.mw = mw;
	w.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	w.bind_mw.bind_info = info;
	err = ibv_post_send(qp, &w, &bad);
	if (!err)
		mw->rkey = w.bind_mw.rkey;
	*key = mw->rkey;
	return err;
}

struct ibv_cq *goucx_create_cq(struct ibv_context *c, int depth, uint64_t cookie, struct ibv_comp_channel *ch,
			       struct ibv_pd *domain, uint32_t flags)
{
	if (flags) {
		struct ibv_cq_init_attr_ex a = {
			.cqe = depth, .cq_context = (void *)(uintptr_t)cookie, .channel = ch,
			.wc_flags = IBV_WC_STANDARD_FLAGS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = flags,
		};
		if (domain) {
			a.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
			a.parent_domain = domain;
		}
		struct ibv_cq_ex *x = ibv_create_cq_ex(c, &a);
		return x ? ibv_cq_ex_to_cq(x) : NULL;
	}
	return ibv_create_cq(c, depth, (void *)(uintptr_t)cookie, ch, 0);
}

int goucx_req_notify(struct goucx_cq *c, int solicited)
{
	if (!enter(&c->gate))
		return EBADF;
	int err = ibv_req_notify_cq(c->cq, solicited);
	leave(&c->gate);
	return err;
}

// A device whose driver lacks the query cannot moderate events.
void goucx_moderation_caps(struct ibv_context *c, uint16_t *count, uint16_t *period_us)
{
	struct ibv_device_attr_ex a = { 0 };
	if (ibv_query_device_ex(c, NULL, &a))
		memset(&a.cq_mod_caps, 0, sizeof(a.cq_mod_caps));
	*count = a.cq_mod_caps.max_cq_count;
	*period_us = a.cq_mod_caps.max_cq_period;
}

int goucx_moderate(struct ibv_cq *c, uint16_t count, uint16_t period_us)
{
	struct ibv_modify_cq_attr a = {
		.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = count, .cq_period = period_us },
	};
	return ibv_modify_cq(c, &a);
}

int goucx_nonblock(int fd)
{
	int f = fcntl(fd, F_GETFL);
	return f < 0 || fcntl(fd, F_SETFL, f | O_NONBLOCK) < 0 ? errno : 0;
}

// Events are acknowledged in the call that reads them, so that ibv_destroy_cq never waits.
int goucx_next_event(struct ibv_comp_channel *ch, uint64_t *cookie)
{
	struct ibv_cq *c;
	void *context;
	if (ibv_get_cq_event(ch, &c, &context))
		return errno ? errno : EAGAIN;
	*cookie = (uintptr_t)context;
	ibv_ack_cq_events(c, 1);
	return 0;
}

// The Go side counts the events that its users have not acknowledged yet.
int goucx_next_async(struct ibv_context *c, struct ibv_async_event *e, void **object)
{
	if (ibv_get_async_event(c, e))
		return errno ? errno : EAGAIN;
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		*object = e->element.cq;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		*object = e->element.srq;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		*object = e->element.qp;
		break;
	default:
		*object = NULL;
	}
	ibv_ack_async_event(e);
	return 0;
}

struct ibv_td *goucx_alloc_td(struct ibv_context *c)
{
	struct ibv_td_init_attr a = { 0 };
	return ibv_alloc_td(c, &a);
}

int goucx_dealloc_td(struct ibv_td *td) { return ibv_dealloc_td(td); }

struct ibv_pd *goucx_parent_domain(struct ibv_context *c, struct ibv_pd *pd, struct ibv_td *td)
{
	struct ibv_parent_domain_init_attr a = { .pd = pd, .td = td };
	return ibv_alloc_parent_domain(c, &a);
}

struct goucx_ahs *goucx_ahs_new(void) { return calloc(1, sizeof(struct goucx_ahs)); }

void goucx_ahs_free(struct goucx_ahs *t)
{
	for (int i = 0; t && i < GOUCX_AH_CHUNKS; i++)
		free(t->chunks[i]);
	free(t);
}

int goucx_ahs_set(struct goucx_ahs *t, uint32_t id, struct ibv_ah *ah, const void *domain)
{
	uint32_t index = id & (GOUCX_AH_CHUNK * GOUCX_AH_CHUNKS - 1);
	struct goucx_ah_slot *chunk = t->chunks[index / GOUCX_AH_CHUNK];
	if (!chunk) {
		chunk = calloc(GOUCX_AH_CHUNK, sizeof(*chunk));
		if (!chunk)
			return ENOMEM;
		__atomic_store_n(&t->chunks[index / GOUCX_AH_CHUNK], chunk, __ATOMIC_RELEASE);
	}
	struct goucx_ah_slot *s = &chunk[index % GOUCX_AH_CHUNK];
	s->id = id;
	s->domain = domain;
	__atomic_store_n(&s->ah, ah, __ATOMIC_RELEASE);
	return 0;
}

void goucx_ahs_clear(struct goucx_ahs *t, uint32_t id)
{
	uint32_t index = id & (GOUCX_AH_CHUNK * GOUCX_AH_CHUNKS - 1);
	__atomic_store_n(&t->chunks[index / GOUCX_AH_CHUNK][index % GOUCX_AH_CHUNK].ah, NULL, __ATOMIC_RELEASE);
}

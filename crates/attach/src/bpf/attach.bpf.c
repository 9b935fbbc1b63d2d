// SPDX-License-Identifier: GPL-2.0-only OR MIT
//
// Chooses the queue of each packet by what is left of its response. It is a classifier of `tc` on Serpent's bands
// (see ../plan.rs), and serves any server: it reads what the server sends and changes nothing of it.
//
// Ranks: 0 goes first. Rank 0 is for packets that no response may delay; responses have ranks from 1 on. Three ranks
// share a band of HTB, because `pfifo_fast` has three strict bands. The ranks of a class of traffic are contiguous.
//
// What is left of a response:
//   - where the server is Serpent: what it tells through the socket;
//   - where its head can be read (HTTP/1 without TLS) and has a Content-Length: the bytes to its end;
//   - else the bytes that it has sent so far (least attained service).
//
// A connection never overtakes itself: it gets a better rank only when none of its packets waits.
//
// Needs Linux 5.15 or later with BTF. Every loop has a fixed bound, so that no later helper is needed.
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "attach.h"

#define TC_ACT_OK 0
#define TC_ACT_UNSPEC -1
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86DD
#define FIN 0x01
#define SYN 0x02
#define RST 0x04

/* The few fields of the kernel's types that are read. Their places are found when the program is loaded (CO-RE). */
typedef struct { int counter; } atomic_t;
typedef struct refcount_struct { atomic_t refs; } __attribute__((preserve_access_index)) refcount_t;
struct sock { refcount_t sk_wmem_alloc; } __attribute__((preserve_access_index));
struct tcp_sock { __u32 snd_una; __u64 bytes_acked; } __attribute__((preserve_access_index));

/* A response under way, of one connection. */
struct flow {
	__u32 begin;       /* sequence number of its first byte */
	__u32 end;         /* that behind its last byte, if `is_known` */
	__u32 max_seq;     /* that behind the last byte seen */
	__u32 ack;         /* last acknowledgement number: the client's words move it */
	__u32 rank;        /* of the last packet */
	__u8 has_begun;
	__u8 is_known;     /* its length is known */
	__u8 in_head;      /* its head goes on in the next packet */
	__u8 class;
	/* The head that is being read. */
	__u8 matched;      /* letters of `wanted` that are matched */
	__u8 in_value;
	__u8 has_length;
	__u8 newlines;     /* that end the bytes read so far: two end the head */
	__u16 status;
	__u16 letters;     /* read of the head */
	__u64 length;      /* value of Content-Length */
	struct told told;  /* of the response under way, if the server tells */
};

/* A connection whose socket is not on this machine, or in another network namespace. */
struct stranger {
	__u32 from[4], to[4];
	__u16 from_port, to_port;
};

struct bytes { __u8 b[HEAD_BYTES]; };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flow);
} flows SEC(".maps");

/* Written only by the server, read only here. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct words);
} told SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, STRANGERS);
	__type(key, struct stranger);
	__type(value, struct flow);
} strangers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bytes);
} heads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* Volatile, so that it stays in the section `.rodata`, of which the loader makes a map. */
static const volatile __u8 wanted[16] = { "\ncontent-length:" };

/* The bytes of a packet that are looked at, and where in them. */
struct reader {
	__u32 start;   /* where the payload is in the packet */
	__u32 first;   /* sequence number of the payload */
	__u32 payload; /* bytes of it */
	__u32 seq;     /* sequence number of the first byte in the buffer */
	__u32 read;    /* bytes in the buffer */
	__u32 at;      /* next byte to look at */
};

static __always_inline void count_size(struct counters *c, __u64 bytes)
{
	/* Four cells an octave, as `cell` in ../sizes.rs has them. */
	__u32 octave = 0;
	__u64 v = bytes | 1;
	if (v >> 32) { v >>= 32; octave += 32; }
	if (v >> 16) { v >>= 16; octave += 16; }
	if (v >> 8) { v >>= 8; octave += 8; }
	if (v >> 4) { v >>= 4; octave += 4; }
	if (v >> 2) { v >>= 2; octave += 2; }
	if (v >> 1) octave += 1;
	__u32 quarter = octave >= 2 ? (bytes >> (octave - 2)) & 3 : 0;
	__u32 cell = octave * 4 + quarter;
	if (cell < SIZE_CELLS)
		c->sizes[cell]++;
}

/* A response whose length was not known is over. */
static __always_inline void count_end(struct counters *c, struct flow *f)
{
	if (f->has_begun && !f->is_known && (__s32)(f->max_seq - f->begin) > 0)
		count_size(c, f->max_seq - f->begin);
}

/* Makes the compiler read memory again. The verifier knows nothing of what is in memory, and so it finds that the rounds
 * of a loop are alike. */
static __always_inline void reread(void)
{
	asm volatile("" ::: "memory");
}

static __always_inline void begin(struct flow *f, __u32 seq)
{
	f->begin = seq;
	f->has_begun = 1;
	f->is_known = 0;
	f->in_head = 0;
}

static __always_inline void begin_head(struct flow *f)
{
	f->in_head = 1;
	f->matched = f->in_value = f->has_length = f->newlines = 0;
	f->status = f->letters = 0;
	f->length = 0;
}

/* Reads heads of responses, a few bytes at a call. Where a head ends, the next one is looked for behind the body.
 * Returns whether there is more to read. All state is in memory, so that the verifier need not follow it, and the
 * function is not static, so that it is verified once and by itself. It takes few bytes, because the verifier has a
 * limit on branches that it has still to follow. */
__noinline int read_heads(struct reader *r, struct bytes *h, struct flow *f, struct counters *c)
{
	if (!r || !h || !f || !c)
		return 0;
	for (int i = 0; i < AT_A_TIME; i++) {
		reread();
		__u32 at = r->at;
		if (at >= r->read || at >= HEAD_BYTES)
			return 0;
		if (!f->in_head) {
			/* Behind a body: the next response, if it is one that can be read. */
			if (at + 8 >= r->read || at + 8 >= HEAD_BYTES)
				return 0;
			if (h->b[at] != 'H' || h->b[at + 1] != 'T' || h->b[at + 2] != 'T' || h->b[at + 3] != 'P' ||
			    h->b[at + 4] != '/' || h->b[at + 5] != '1' || h->b[at + 6] != '.')
				return 0;
			begin(f, r->seq + at);
			begin_head(f);
		}
		__u8 letter = h->b[at];
		__u32 letters = f->letters;
		if (letters - 9 < 3)
			f->status = f->status * 10 + (letter - '0');
		f->letters = letters + (letters < 0xffff);
		reread();
		if (letter >= 'A' && letter <= 'Z')
			letter += 32;
		if (f->in_value) {
			if (letter >= '0' && letter <= '9') {
				f->length = f->length * 10 + (letter - '0');
				f->has_length = 1;
			} else if (letter != ' ' && letter != '\t') {
				f->in_value = 0;
				f->matched = letter == '\n';
			}
		} else {
			__u32 matched = f->matched & 15;
			if (letter == wanted[matched])
				f->matched = matched + 1;
			else
				f->matched = letter == '\n';
			if (f->matched == 16) {
				f->in_value = 1;
				f->length = 0;
				f->matched = 0;
			}
		}
		reread();
		if (letter == '\n')
			f->newlines++;
		else if (letter != '\r')
			f->newlines = 0;
		r->at++;
		reread();
		if (f->newlines < 2)
			continue;
		/* The head is over. */
		f->in_head = 0;
		__u32 behind = r->seq + at + 1;
		__u32 status = f->status;
		if (status < 200) {
			begin(f, behind); /* An interim response; another head follows. */
			continue;
		}
		__u8 empty = status == 204 || status == 304;
		if (!empty && !f->has_length) {
			c->unknown++;
			return 0;
		}
		__u64 body = empty ? 0 : f->length;
		c->known++;
		count_size(c, (behind - f->begin) + body);
		/* Sequence numbers cannot tell a distance of 2 GB or more: that far the end is moved along. */
		f->is_known = 1;
		f->end = behind + (body > FAR ? FAR : (__u32)body);
		if (body > FAR)
			return 0;
		r->at = f->end - r->seq;
	}
	return 1;
}

/* Reads a part of the payload, from `at` on, into the buffer. Returns whether there is one. */
static __always_inline int load(struct __sk_buff *skb, struct reader *r, struct bytes *h, __u32 at)
{
	__u32 payload = r->payload;
	if (at >= payload)
		return 0;
	__u32 size = payload - at < HEAD_BYTES ? payload - at : HEAD_BYTES;
	r->seq = r->first + at;
	r->read = size;
	r->at = 0;
	size &= HEAD_BYTES * 2 - 1;
	return size && size <= HEAD_BYTES && !bpf_skb_load_bytes(skb, r->start + at, h, size);
}

/* Reads the heads of a packet from the part in the buffer on. Like `read_heads`, it is verified by itself. */
__noinline int read_parts(struct __sk_buff *skb, struct reader *r, struct bytes *h, struct flow *f, struct counters *c)
{
	if (!r || !h || !f || !c)
		return 0;
	for (int part = 0; part < PARTS; part++) {
		for (int i = 0; i < HEAD_BYTES / AT_A_TIME; i++)
			if (!read_heads(r, h, f, c))
				break;
		reread();
		/* A head goes on, or the next one is, behind this part. */
		__u32 next = r->seq + r->at - r->first;
		if (!f->in_head && (r->at + 8 < r->read || next + 8 >= r->payload))
			return 1;
		if (!load(skb, r, h, next))
			return 1;
	}
	return 1;
}

/* The rank in a class of traffic. The server's own classes divide its ranks evenly: the first ones get what is left
 * over, and each has all of the cutoffs, thinned out. */
static __always_inline __u32 rank_of(const struct settings *s, __u32 class, const struct told *t, __u32 left)
{
	__u32 rank = 0, ranks = s->classes[class].ranks;
	for (__u32 i = 0; i < RANKS - 1; i++) {
		if (i + 1 >= ranks || left < s->classes[class].cutoffs[i])
			break;
		rank = i + 1;
	}
	if (t->classes > 1 && ranks) {
		__u32 number = t->class < t->classes ? t->class : t->classes - 1;
		__u32 share = ranks / t->classes, rest = ranks % t->classes;
		__u32 own = share + (number < rest);
		rank = number * share + (number < rest ? number : rest) + rank * own / ranks;
		if (rank >= ranks)
			rank = ranks - 1;
	}
	return s->classes[class].first_rank + rank;
}

/* Takes over what the server has told, from the packet on for which it holds. Bytes before it belong to the response
 * before. Returns whether anything is known so. */
static __always_inline int hear(struct flow *f, const struct words *all, __u32 offset, struct counters *c)
{
	const struct told *t = 0;
	for (int i = 0; i < WORDS; i++)
		if (all->word[i].classes && (__s32)(offset - all->word[i].offset) >= 0)
			t = &all->word[i];
	if (!t || (f->told.classes && f->told.offset == t->offset && f->told.bytes == t->bytes))
		return f->told.classes;
	if (t->flags & TOLD_NEW) {
		if (f->told.classes && (f->told.flags & TOLD_SENT))
			count_size(c, f->told.bytes + (t->offset - f->told.offset));
		if (t->flags & TOLD_SENT) {
			c->unknown++;
		} else {
			c->known++;
			count_size(c, t->bytes);
		}
	}
	f->told = *t;
	return 1;
}

/* What is left of the response that the server has told of. */
static __always_inline __u32 left_of(const struct told *t, __u32 offset)
{
	__u64 since = offset - t->offset;
	__u64 left = t->bytes + since;
	if (!(t->flags & TOLD_SENT))
		left = t->bytes > since ? t->bytes - since : 0;
	return left > FAR ? FAR : left;
}

/* Whether all words of `a` are those of `b`, as far as the mask goes. */
static __always_inline int is_within(const __u32 *a, const __u32 *b, const __u32 *mask)
{
	return !(((a[0] ^ b[0]) & mask[0]) | ((a[1] ^ b[1]) & mask[1]) | ((a[2] ^ b[2]) & mask[2]) |
		 ((a[3] ^ b[3]) & mask[3]));
}

static __always_inline __u32 class_of(struct __sk_buff *skb, const struct settings *s, const struct stranger *who,
				      struct bpf_sock *sk)
{
	__u64 cgroup = 0;
	if (sk && s->by_cgroup)
		cgroup = bpf_skb_cgroup_id(skb);
	for (__u32 i = 0; i < CLASSES; i++) {
		const struct class *c = &s->classes[i];
		if (i >= s->class_count)
			break;
		if (c->by_mark && (skb->mark & c->mark_mask) != c->mark)
			continue;
		if (c->port && c->port != bpf_ntohs(who->from_port))
			continue;
		if (c->cgroup && c->cgroup != cgroup)
			continue;
		if (c->by_source && !is_within(who->to, c->source, c->source_mask))
			continue;
		return i;
	}
	return s->class_count ? s->class_count - 1 : 0;
}

static __always_inline int into(struct __sk_buff *skb, const struct settings *s, __u32 rank)
{
	if (rank > s->last_rank)
		rank = s->last_rank;
	if (s->subranks == 3 && rank) {
		/* The priorities that lead to the three bands of pfifo_fast. */
		__u32 sub = (rank - 1) % 3;
		skb->priority = sub == 0 ? 6 : sub == 1 ? 0 : 2;
		skb->tc_classid = (rank - 1) / 3 + 2;
	} else {
		skb->tc_classid = rank + 1;
	}
	return TC_ACT_OK;
}

/* Whether packets of the connection wait before this one. The kernel counts the memory of those that have not left: it is
 * that of one packet more than this one then. */
static __always_inline int waits_behind(struct __sk_buff *skb, struct tcp_sock *tp)
{
	__u32 queued = ((struct sock *)tp)->sk_wmem_alloc.refs.counter;
	return queued > skb->len + OWN_TRUESIZE;
}

static __always_inline __u32 counted(struct counters *c, __u32 rank, __u32 payload)
{
	if (rank < RANKS) {
		c->packets[rank]++;
		c->bytes[rank] += payload;
	}
	return rank;
}

SEC("classifier")
int choose(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct settings *s = bpf_map_lookup_elem(&settings, &zero);
	struct counters *c = bpf_map_lookup_elem(&counters, &zero);
	if (!s || !c)
		return TC_ACT_UNSPEC;

	/* Offsets count from the network header, so that any kind of link and any VLAN tag will do. */
	struct stranger who = {};
	__u32 header, total;
	__u8 first;
	if (bpf_skb_load_bytes_relative(skb, 0, &first, 1, BPF_HDR_START_NET))
		goto foreign;
	if (first >> 4 == 4) {
		__u8 ip[20];
		if (bpf_skb_load_bytes_relative(skb, 0, ip, sizeof(ip), BPF_HDR_START_NET))
			goto foreign;
		/* The fragments behind the first one have no ports. */
		if (ip[9] != IPPROTO_TCP || (ip[6] & 0x1f) || ip[7])
			goto foreign;
		header = (ip[0] & 15) * 4;
		total = ip[2] << 8 | ip[3];
		__builtin_memcpy(&who.from[0], &ip[12], 4);
		__builtin_memcpy(&who.to[0], &ip[16], 4);
	} else if (first >> 4 == 6) {
		__u8 ip[40];
		if (bpf_skb_load_bytes_relative(skb, 0, ip, sizeof(ip), BPF_HDR_START_NET) || ip[6] != IPPROTO_TCP)
			goto foreign;
		header = 40;
		total = (ip[4] << 8 | ip[5]);
		if (total)
			total += 40;
		__builtin_memcpy(who.from, &ip[8], 16);
		__builtin_memcpy(who.to, &ip[24], 16);
	} else {
		goto foreign;
	}
	__u8 tcp[20];
	if (bpf_skb_load_bytes_relative(skb, header, tcp, sizeof(tcp), BPF_HDR_START_NET))
		goto foreign;
	__builtin_memcpy(&who.from_port, &tcp[0], 2);
	__builtin_memcpy(&who.to_port, &tcp[2], 2);
	__u16 port = bpf_ntohs(who.from_port);
	int is_ours = 0;
	for (__u32 i = 0; i < PORTS; i++)
		if (i < s->port_count && s->ports[i] == port)
			is_ours = 1;
	if (!is_ours)
		goto foreign;

	__u32 seq, ack;
	__builtin_memcpy(&seq, &tcp[4], 4);
	__builtin_memcpy(&ack, &tcp[8], 4);
	seq = bpf_ntohl(seq);
	ack = bpf_ntohl(ack);
	__u32 data = header + (tcp[12] >> 4) * 4;
	if (!total) /* A packet beyond 64 KB has no length in its head. */
		total = skb->len > 14 ? skb->len - 14 : skb->len;
	/* Data may lie in pages, which only offsets from the head of the link reach. */
	__u32 link = skb->len > total ? skb->len - total : 0;
	__u32 payload = total > data ? total - data : 0;
	if (payload > MOST_PAYLOAD)
		payload = MOST_PAYLOAD;
	/* A SYN-ACK, an acknowledgement: nothing of a response. A FIN or RST stays behind its data. */
	if ((tcp[13] & SYN) || (!payload && !(tcp[13] & (FIN | RST)))) {
		c->control++;
		return into(skb, s, 0);
	}

	struct flow *f;
	struct tcp_sock *tp = 0;
	struct bpf_sock *sk = skb->sk;
	if (sk)
		sk = bpf_sk_fullsock(sk);
	if (sk) {
		f = bpf_sk_storage_get(&flows, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		tp = bpf_skc_to_tcp_sock(sk);
	} else {
		c->strangers++;
		f = bpf_map_lookup_elem(&strangers, &who);
		if (!f) {
			struct flow none = {};
			bpf_map_update_elem(&strangers, &who, &none, BPF_ANY);
			f = bpf_map_lookup_elem(&strangers, &who);
		}
	}
	if (!f) {
		c->lost++;
		return into(skb, s, s->last_rank);
	}
	if (!payload)
		return into(skb, s, f->rank);
	if (!f->has_begun && !f->told.classes) {
		f->class = class_of(skb, s, &who, sk);
		/* It has begun before this program did: its packets wait in the default band, which is the last one. */
		if (tp && waits_behind(skb, tp))
			f->rank = s->last_rank;
	}
	__u32 class = f->class;
	if (class >= CLASSES)
		class = 0;

	/* The place of the packet in all that the connection sends. */
	__u32 offset = tp ? seq - (tp->snd_una - (__u32)tp->bytes_acked) : 0;
	struct words *t = sk ? bpf_sk_storage_get(&told, sk, 0, 0) : 0;
	__u32 left, rank;
	int is_new = 0, has_spoken = 0;
	if (t && tp && hear(f, t, offset, c)) {
		if ((__s32)(offset - f->told.offset) < 0)
			return into(skb, s, counted(c, f->rank, payload));
		left = left_of(&f->told, offset);
		goto known;
	}

	/* What the client says moves the acknowledgement number. Between two responses that is a request, whether it is
	 * encrypted or not; else it may be an update of a window. With a request all of the response before has been
	 * acknowledged, where that can be asked. */
	is_new = !f->has_begun || (__s32)(seq - f->max_seq) >= 0;
	has_spoken = !f->has_begun || ack != f->ack;
	int is_idle = tp ? tp->snd_una == seq : 1;
	if (is_new && has_spoken)
		f->ack = ack;

	struct bytes *h = bpf_map_lookup_elem(&heads, &zero);
	if (is_new && h) {
		__u32 body = f->is_known && (__s32)(f->end - seq) > 0 ? f->end - seq : 0;
		struct reader r = { .start = link + data, .first = seq, .payload = payload };
		int reads = 0;
		if (f->in_head && seq == f->max_seq)
			reads = 1;
		else if (payload > 8 && (has_spoken || !f->has_begun))
			/* The response to HEAD has a length and no body, so a head is looked for where it may be. */
			reads = 2;
		else if (f->is_known && body < payload)
			reads = 3;
		if (reads && !load(skb, &r, h, reads == 3 ? body : 0))
			reads = 0;
		if (reads == 2) {
			if (h->b[0] == 'H' && h->b[1] == 'T' && h->b[2] == 'T' && h->b[3] == 'P' && h->b[4] == '/' &&
			    h->b[5] == '1') {
				count_end(c, f);
				f->in_head = 0;
			} else if (!body || !load(skb, &r, h, body)) {
				reads = 0;
			}
		}
		if (reads)
			read_parts(skb, &r, h, f, c);
		if (!reads && !f->has_begun) {
			begin(f, seq);
			c->unknown++;
		} else if (!reads && !body && !f->in_head && has_spoken && is_idle) {
			count_end(c, f);
			begin(f, seq);
			c->unknown++;
		}
	} else if (!f->has_begun) {
		begin(f, seq);
	}
	if (f->is_known && (__s32)(seq - f->end) >= 0 && is_new && !f->in_head) {
		/* More than was promised: its length is not known. */
		begin(f, seq);
	}

	if (f->is_known) {
		left = f->end - seq;
		if ((__s32)left < 0)
			left = payload;
	} else {
		left = (__s32)(seq - f->begin) > 0 ? seq - f->begin : 0;
	}
	if (is_new)
		f->max_seq = seq + payload;

known:
	rank = rank_of(s, class, &f->told, left);
	if (rank < f->rank) {
		if (tp ? waits_behind(skb, tp) : !(is_new && has_spoken)) {
			rank = f->rank;
			c->held++;
		}
	}
	f->rank = rank;
	return into(skb, s, counted(c, rank, payload));

foreign:
	c->foreign++;
	return into(skb, s, s->foreign_rank);
}

char _license[] SEC("license") = "Dual MIT/GPL";

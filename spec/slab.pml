/* One source's slab at one receiver, of one kind and half (src/fabric/window.h), and what may be done with it.
 * Exchanges are named by their ordinal modulo 4: the program's 64 bits tell apart more than is needed.
 */

typedef Slab {
  byte flying; /* name of the put under way; 0: none */
  byte placed; /* name of what lies there, as the arrival word says; 0: nothing yet */
  bool unread; /* put, and the receiver is not done with it */
  bool work;   /* the header's flags */
  bool more;
};

hidden byte half_was_free;
hidden byte read_what_was_awaited;

#define NAME(seq) ((seq) + 1)
#define NEXT(seq) (((seq) + 1) % 4)
#define AHEAD(later, earlier) (((later) + 4 - (earlier)) % 4)
#ifdef MUTANT_MATCH_BY_HALF
#define ARRIVED_IN(it, seq) (it.placed != 0)
#else
#define ARRIVED_IN(it, seq) (it.placed == NAME(seq))
#endif

/* The bytes may lie in the slab from now on (a local peer), so it must be free now; when they are seen is another
 * matter. */
inline put(it, seq, with_work, with_more) {
  CHECK(half_was_free, !it.unread && it.flying == 0);
  it.unread = true;
  it.flying = NAME(seq);
  it.work = with_work;
  it.more = with_more
}

inline place(it) {
  it.placed = it.flying;
  it.flying = 0
}

inline check_awaited(it, seq) { CHECK(read_what_was_awaited, it.placed == NAME(seq) && it.flying == 0) }

inline be_done_with(it) {
  it.unread = false;
  it.work = false;
  it.more = false
}

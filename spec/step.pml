/* The exchange's slab halves and the step, idle and wake protocol: DESIGN's sections on the exchange and on the
 * step, as src/exchange and src/engine follow them. `spec/run` checks it with spin, and that every mutant fails.
 *
 * RANKS ranks run steps of EXCHANGES exchanges. An exchange is dispatch, answer (read what arrived, send combine),
 * collect (read the combines). DEPTH exchanges of a step may be under way at once: 1 is what the program does, for
 * which one half would do; 2 (micro-batches) is what two HALVES are enough for. A put is placed by a link process
 * at any later moment, in any order. Requests come to any rank at any moment, up to REQUESTS to each; a step serves
 * one.
 *
 * Checked: no put goes into a half that holds something unread, what is read is what was waited for, all ranks
 * decide alike between the next step and idling, and when nothing can happen any more all are idle and every
 * request has been served (so: no deadlock, no lost wake). Without DISPATCH_WAKES only wakes end a sleep, as if the
 * waking rank were slow to dispatch; with it, a dispatch of the next exchange ends it too.
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef REQUESTS
#define REQUESTS 2
#endif
#ifndef EXCHANGES
#define EXCHANGES 2
#endif
#ifndef HALVES
#define HALVES 2
#endif
#ifndef DEPTH
#define DEPTH 1
#endif

#define MAX_STEPS (RANKS * REQUESTS + 2)
#define DISPATCH 0
#define COMBINE 1
#define SLABS (RANKS * RANKS * 2 * HALVES)

/* The slab that `from` writes in the window of `to` in exchange `seq`. */
#define SLAB(from, to, kind, seq) ((((from) * RANKS + (to)) * 2 + (kind)) * HALVES + (seq) % HALVES)

typedef Slab {
  byte flying; /* seq + 1 of the put under way; 0: none */
  byte placed; /* seq + 1 of what lies there, as the arrival word says */
  bool unread; /* put, and not yet done with by the receiver */
  bool flying_work;
  bool work; /* the header's has_work */
};
Slab slab[SLABS];

byte pending[RANKS];               /* requests not yet served */
short wakes_flying[RANKS * RANKS]; /* from x to: bit n: a wake for step n is under way */
byte woken[RANKS * RANKS];         /* to x from: the highest step woken for */
byte bell[RANKS];                  /* 0: nobody waits; 1: a wait is armed; 2: it has rung since */
byte decided[MAX_STEPS + 1];       /* after step n: 0 open, 1 idle, 2 step again */
byte idle_ranks;

#ifdef MUTANT_MATCH_BY_HALF
#define ARRIVED(me, from, kind, seq) (from == me || slab[SLAB(from, me, kind, seq)].placed > 0)
#else
#define ARRIVED(me, from, kind, seq) (from == me || slab[SLAB(from, me, kind, seq)].placed == seq + 1)
#endif

#ifdef MUTANT_STALE_WAKE
#define WOKEN(me, from, next) (woken[me * RANKS + from] > 0)
#else
#define WOKEN(me, from, next) (woken[me * RANKS + from] >= next)
#endif

#ifdef DISPATCH_WAKES
#define BEGUN(me, from, next, seq) (from != me && (WOKEN(me, from, next) || ARRIVED(me, from, DISPATCH, seq)))
#else
#define BEGUN(me, from, next, seq) (from != me && WOKEN(me, from, next))
#endif

#if RANKS == 2
#define ALL_ARRIVED(me, kind, seq) (ARRIVED(me, 0, kind, seq) && ARRIVED(me, 1, kind, seq))
#define ANY_BEGUN(me, next, seq) (BEGUN(me, 0, next, seq) || BEGUN(me, 1, next, seq))
#else
#define ALL_ARRIVED(me, kind, seq) \
  (ARRIVED(me, 0, kind, seq) && ARRIVED(me, 1, kind, seq) && ARRIVED(me, 2, kind, seq))
#define ANY_BEGUN(me, next, seq) \
  (BEGUN(me, 0, next, seq) || BEGUN(me, 1, next, seq) || BEGUN(me, 2, next, seq))
#endif

/* Publishing comes first, ringing after it: two steps, or one with COARSE (fewer states). */
#define ring(rank) bell[rank] = (bell[rank] == 0 -> 0 : 2)
#ifdef COARSE
#define ring_if_coarse(rank) ring(rank)
#define ring_if_fine(rank)
#else
#define ring_if_coarse(rank) skip
#define ring_if_fine(rank) ring(rank)
#endif

/* A put to every peer. Its bytes may lie in the peer's slab from now on (a local peer), so the half must be free
 * now; when they are seen is the link's business. */
inline put_to_all(kind, seq, with_work) {
  d_step {
    peer = 0;
    do
    :: peer < RANKS ->
       if
       :: peer != me ->
          assert(!slab[SLAB(me, peer, kind, seq)].unread);
          assert(slab[SLAB(me, peer, kind, seq)].flying == 0);
          slab[SLAB(me, peer, kind, seq)].unread = true;
          slab[SLAB(me, peer, kind, seq)].flying = seq + 1;
          slab[SLAB(me, peer, kind, seq)].flying_work = with_work
       :: else
       fi;
       peer++
    :: else -> break
    od;
    peer = 0
  }
}

/* Reads what every peer sent and is done with it. */
inline read_from_all(kind, seq) {
  d_step {
    peer = 0;
    do
    :: peer < RANKS ->
       if
       :: peer != me ->
          assert(slab[SLAB(peer, me, kind, seq)].placed == seq + 1);
          slab[SLAB(peer, me, kind, seq)].unread = false;
          if
          :: kind == DISPATCH && seq % EXCHANGES == EXCHANGES - 1 ->
             any_work = any_work || slab[SLAB(peer, me, kind, seq)].work
          :: else
          fi
       :: else
       fi;
       peer++
    :: else -> break
    od;
    peer = 0
  }
}

/* One exchange's second half: wait, read, answer, wait, read. */
inline answer_and_collect(seq) {
  ALL_ARRIVED(me, DISPATCH, seq);
#ifdef MUTANT_ANSWER_BEFORE_READ
  put_to_all(COMBINE, seq, false);
  ALL_ARRIVED(me, COMBINE, seq); /* the reading drags on until the combine is collected */
#endif
  read_from_all(DISPATCH, seq);
#ifndef MUTANT_ANSWER_BEFORE_READ
  put_to_all(COMBINE, seq, false);
  ALL_ARRIVED(me, COMBINE, seq);
#endif
  read_from_all(COMBINE, seq)
}

inline wake_all(next) {
  d_step {
    peer = 0;
    do
    :: peer < RANKS ->
       if
       :: peer != me -> wakes_flying[me * RANKS + peer] = wakes_flying[me * RANKS + peer] | (1 << next)
       :: else
       fi;
       peer++
    :: else -> break
    od;
    peer = 0
  }
}

/* A rank runs on until it must wait (atomic): what others could do in between, they can do before. */
proctype rank(byte me) {
  byte peer;
  byte step = 1;   /* every epoch starts with one step that nobody sleeps through */
  byte sent, done; /* exchanges whose dispatch is sent; that are finished */
  bool serving;    /* this step serves a request */
  bool my_work;    /* what the last dispatch header said */
  bool any_work;

run_step:
  atomic {
    serving = pending[me] > 0;
    any_work = false;
    do
    :: sent < step * EXCHANGES && sent - done < DEPTH ->
       my_work = pending[me] > (serving -> 1 : 0);
       put_to_all(DISPATCH, sent, my_work);
       sent++
    :: done < step * EXCHANGES && (sent == step * EXCHANGES || sent - done == DEPTH) ->
       answer_and_collect(done);
       done++
    :: done == step * EXCHANGES -> break
    od;

    /* Commit, and the decision that all make alike from the headers of the last exchange. */
    pending[me] = pending[me] - (serving -> 1 : 0);
    serving = false;
#ifdef MUTANT_IGNORE_OTHERS_WORK
    any_work = my_work;
#endif
#ifdef MUTANT_WORK_AS_OF_NOW
    any_work = any_work || pending[me] > 0;
#else
    any_work = any_work || my_work;
#endif
    my_work = false;
    assert(decided[step] == 0 || decided[step] == (any_work -> 2 : 1));
    decided[step] = (any_work -> 2 : 1);
    step++;
    if
    :: any_work -> goto run_step
    :: else -> idle_ranks++
    fi
  }

  /* Idle, until this rank has a request or another has entered the next step. */
#ifdef MUTANT_CLEAR_WAKES
  atomic {
    do
    :: peer < RANKS -> woken[me * RANKS + peer] = 0; peer++
    :: else -> peer = 0; break
    od
  }
#endif
  do
  :: atomic { pending[me] > 0 -> wake_all(step); break }
  :: pending[me] == 0 && ANY_BEGUN(me, step, done) -> break
  :: pending[me] == 0 && !ANY_BEGUN(me, step, done) ->
     bell[me] = 1;
#ifndef MUTANT_NO_RECHECK
     if
     :: pending[me] > 0 || ANY_BEGUN(me, step, done)
     :: else ->
end_asleep: bell[me] == 2
     fi;
#else
end_asleep: bell[me] == 2;
#endif
     bell[me] = 0
  od;
  idle_ranks--;
  goto run_step
}

inline place(kind, half) {
  d_step {
    slab[SLAB(from, to, kind, half)].flying > 0 ->
    slab[SLAB(from, to, kind, half)].placed = slab[SLAB(from, to, kind, half)].flying;
    slab[SLAB(from, to, kind, half)].work = slab[SLAB(from, to, kind, half)].flying_work;
    slab[SLAB(from, to, kind, half)].flying = 0;
    slab[SLAB(from, to, kind, half)].flying_work = false;
#ifdef DISPATCH_WAKES
    if
    :: kind == DISPATCH -> ring(to)
    :: else
    fi
#endif
  }
}

/* Everything that travels from one rank to another: placed at any time, in any order, then the bell is rung. */
proctype link(byte from, to) {
  byte step;
end_link:
  do
  :: place(DISPATCH, 0)
  :: place(COMBINE, 0)
#if HALVES == 2
  :: place(DISPATCH, 1)
  :: place(COMBINE, 1)
#endif
  :: atomic {
       wakes_flying[from * RANKS + to] != 0 ->
       step = 1;
       do
       :: wakes_flying[from * RANKS + to] >> (step + 1) -> step++
       :: wakes_flying[from * RANKS + to] & (1 << step) -> break
       od;
       wakes_flying[from * RANKS + to] = wakes_flying[from * RANKS + to] & ~(1 << step);
       if
       :: woken[to * RANKS + from] < step -> woken[to * RANKS + from] = step
       :: else
       fi;
       step = 0;
       ring_if_coarse(to)
     }
     ring_if_fine(to)
  od
}

/* The requests of one rank, each at any time; each rings the rank's bell. */
proctype clients(byte to, left) {
end_clients:
  do
#ifdef MUTANT_RING_FIRST
  :: left > 0 -> left--; ring(to); pending[to]++
#else
  :: atomic { left > 0 -> left--; pending[to]++; ring_if_coarse(to) } ring_if_fine(to)
#endif
  od
}

/* When nothing else can happen: everyone idle, nothing unserved. */
proctype watch() {
end_watch:
  timeout ->
  assert(idle_ranks == RANKS);
  assert(pending[0] == 0 && pending[1] == 0);
#if RANKS == 3
  assert(pending[2] == 0);
#endif
}

init {
  atomic {
    byte i = 0, j = 0;
    do
    :: i < RANKS ->
       run rank(i);
       j = 0; /* any number of requests up to REQUESTS */
       do
       :: j < REQUESTS -> j++
       :: break
       od;
       run clients(i, j);
       j = 0;
       do
       :: j < RANKS ->
          if
          :: i != j -> run link(i, j)
          :: else
          fi;
          j++
       :: else -> break
       od;
       i++
    :: else -> break
    od;
    run watch()
  }
}

/* The exchange's slab halves, the rounds of a layer, and the step, idle and wake protocol: DESIGN's sections on the
 * exchange and on the step, as src/exchange and src/engine follow them.
 *
 * RANKS ranks run steps of LAYERS layers. A layer is BATCHES exchanges (micro-batches), and then one more round for
 * as long as some rank's header says `more`: at most ROUNDS in all. An exchange is dispatched, received, answered
 * (its rows are read until then) and collected; at most DEPTH are under way at once, each in one of HALVES halves. A
 * put is placed by a link process at any later moment, in any order. Requests come to any rank at any moment, up to
 * REQUESTS to each of the first REQUESTED ranks; a step serves one.
 *
 * Checked: no put goes into a half that holds something unread; what is read is what was waited for; all ranks decide
 * alike whether there is another round and between the next step and idling; and when nothing can happen any more
 * all are idle and every request has been served (so: no deadlock, no lost wake). Without DISPATCH_WAKES only wakes
 * end a sleep, as if the waking rank were slow to dispatch; with it, a dispatch of the next exchange ends it too.
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef REQUESTS
#define REQUESTS 1
#endif
#ifndef REQUESTED
#define REQUESTED RANKS
#endif
#ifndef LONG /* so many ranks may have a batch of several rounds */
#define LONG RANKS
#endif
#ifndef LAYERS
#define LAYERS 1
#endif
#ifndef BATCHES
#define BATCHES 1
#endif
#ifndef ROUNDS
#define ROUNDS BATCHES
#endif
#ifndef HALVES
#define HALVES 2
#endif
#ifndef DEPTH
#define DEPTH 1
#endif

#include "checks.pml"
#include "slab.pml"

#define DISPATCH 0
#define COMBINE 1

/* The slab that `from` writes in the window of `to`; a rank's rows to itself lie in one, too. */
#define SLAB(from, to, kind, seq) slab[(((from) * RANKS + (to)) * 2 + (kind)) * HALVES + (seq) % HALVES]
Slab slab[RANKS * RANKS * 2 * HALVES];

byte pending[RANKS];               /* requests not yet served */
short wakes_flying[RANKS * RANKS]; /* from x to: bit n: a wake for step n is under way */
byte woken[RANKS * RANKS];         /* to x from: the highest step woken for */
byte bell[RANKS];                  /* 0: nobody waits; 1: a wait is armed; 2: it has rung since */
byte idle_ranks;

hidden byte agree_on_rounds;
hidden byte agree_on_idling;
hidden byte all_are_idle;
hidden byte all_are_served;

/* What the first of the ranks to decide has decided, until the last has. */
typedef Vote {
  byte votes;
  bool yes;
};
Vote more_vote[4];
Vote step_vote;

inline vote(rule, it, for_it) {
  CHECK(rule, it.votes == 0 || it.yes == (for_it));
  it.yes = (for_it);
  it.votes = (it.votes + 1) % RANKS;
  if
  :: it.votes == 0 -> it.yes = false
  :: else
  fi
}

#define ARRIVED(me, from, kind, seq) (from == me || ARRIVED_IN(SLAB(from, me, kind, seq), seq))

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

#ifdef MUTANT_SEND_BEFORE_COMBINE
#define UNDER_WAY AHEAD(sent, answered)
#else
#define UNDER_WAY AHEAD(sent, done)
#endif

#define FOR_ALL_RANKS(peer) for (peer : 0 .. RANKS - 1)

inline dispatch() {
  if
  :: me < LONG && round + 1 < ROUNDS -> my_more = true
  :: my_more = false
  fi;
  d_step {
    FOR_ALL_RANKS(peer) { put(SLAB(me, peer, DISPATCH, sent), sent, my_work, my_more) };
    place(SLAB(me, me, DISPATCH, sent));
    sent = NEXT(sent);
    round++;
    to_send--;
    my_more = false
  }
}

inline read_header(it) {
  check_awaited(it, received);
  any_work = any_work || it.work;
  any_more = any_more || it.more
}

/* Whether there is another round is known from here on. */
inline receive() {
  d_step {
    any_work = false;
    any_more = false;
    FOR_ALL_RANKS(peer) { read_header(SLAB(peer, me, DISPATCH, received)) };
#ifdef MUTANT_OWN_MORE
    any_more = SLAB(me, me, DISPATCH, received).more;
#endif
    vote(agree_on_rounds, more_vote[received], any_more);
    to_send = to_send + (any_more -> 1 : 0);
    any_more = false;
    received = NEXT(received)
  }
}

inline put_combine(from, to) {
  if
  :: to != from -> put(SLAB(from, to, COMBINE, answered), answered, false, false)
  :: else
  fi
}

inline answer() {
  d_step {
#ifndef MUTANT_ANSWER_BEFORE_READ
    FOR_ALL_RANKS(peer) { be_done_with(SLAB(peer, me, DISPATCH, answered)) };
#endif
    FOR_ALL_RANKS(peer) { put_combine(me, peer) };
    answered = NEXT(answered)
  }
}

inline read_combine(from, to) {
  if
  :: from != to -> check_awaited(SLAB(from, to, COMBINE, done), done); be_done_with(SLAB(from, to, COMBINE, done))
  :: else
  fi
}

inline collect() {
  d_step {
    FOR_ALL_RANKS(peer) { read_combine(peer, me) };
#ifdef MUTANT_ANSWER_BEFORE_READ
    FOR_ALL_RANKS(peer) { be_done_with(SLAB(peer, me, DISPATCH, done)) }; /* the reading drags on until here */
#endif
    done = NEXT(done)
  }
}

inline set_wake_flying(from, to, next) {
  if
  :: to != from -> wakes_flying[from * RANKS + to] = wakes_flying[from * RANKS + to] | (1 << next)
  :: else
  fi
}

proctype rank(byte me) {
  byte peer;
  byte step = 1; /* every epoch starts with one step that nobody sleeps through */
  byte sent, received, answered, done; /* exchanges, modulo 4 */
  byte layer, round;
  byte to_send; /* exchanges of this layer that are known to come */
  bool serving; /* this step serves a request */
  bool my_work, my_more, any_work, any_more;

run_step:
  atomic {
    serving = pending[me] > 0;
    my_work = pending[me] > (serving -> 1 : 0);
    to_send = BATCHES
  }
  do
  :: atomic { to_send > 0 && UNDER_WAY < DEPTH -> dispatch() }
  :: atomic { received != sent && ALL_ARRIVED(me, DISPATCH, received) -> receive() }
  :: atomic { answered != received -> answer() }
  :: atomic { done != answered && ALL_ARRIVED(me, COMBINE, done) -> collect() }
  :: atomic {
       to_send == 0 && done == sent ->
       layer++;
       round = 0;
       if
       :: layer == LAYERS -> break
       :: else -> to_send = BATCHES
       fi
     }
  od;
  atomic {
    layer = 0;
    /* Commit, and the decision that all make alike from the headers of the last exchange. */
    pending[me] = pending[me] - (serving -> 1 : 0);
    serving = false;
#ifdef MUTANT_IGNORE_OTHERS_WORK
    any_work = my_work;
#endif
#ifdef MUTANT_WORK_AS_OF_NOW
    any_work = any_work || pending[me] > 0;
#endif
    my_work = false;
    vote(agree_on_idling, step_vote, any_work);
    step++;
    if
    :: any_work -> any_work = false; goto run_step
    :: else -> idle_ranks++
    fi
  }

  /* Idle, until this rank has a request or another has entered the next step. */
#ifdef MUTANT_CLEAR_WAKES
  atomic { FOR_ALL_RANKS(peer) { woken[me * RANKS + peer] = 0 } }
#endif
  do
  :: atomic { pending[me] > 0 -> FOR_ALL_RANKS(peer) { set_wake_flying(me, peer, step) }; break }
  :: pending[me] == 0 && ANY_BEGUN(me, step, done) -> break
  :: pending[me] == 0 && !ANY_BEGUN(me, step, done) ->
     bell[me] = 1;
#ifndef MUTANT_NO_RECHECK
     if
     :: pending[me] > 0 || ANY_BEGUN(me, step, done)
     :: else -> bell[me] == 2
     fi;
#else
     bell[me] == 2;
#endif
     bell[me] = 0
  od;
  idle_ranks--;
  goto run_step
}

inline place_and_wake(kind, half) {
  d_step {
    SLAB(from, to, kind, half).flying > 0 ->
    place(SLAB(from, to, kind, half));
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
  do
  :: place_and_wake(DISPATCH, 0)
  :: place_and_wake(COMBINE, 0)
#if HALVES == 2
  :: place_and_wake(DISPATCH, 1)
  :: place_and_wake(COMBINE, 1)
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
  do
#ifdef MUTANT_RING_FIRST
  :: left > 0 -> left--; ring(to); pending[to]++
#else
  :: atomic { left > 0 -> left--; pending[to]++; ring_if_coarse(to) } ring_if_fine(to)
#endif
  :: left == 0 -> break
  od
}

/* When nothing else can happen. */
proctype watch() {
  timeout ->
  CHECK(all_are_idle, idle_ranks == RANKS);
#if RANKS == 3
  CHECK(all_are_served, pending[0] == 0 && pending[1] == 0 && pending[2] == 0)
#else
  CHECK(all_are_served, pending[0] == 0 && pending[1] == 0)
#endif
}

init {
  atomic {
    byte i = 0, j = 0;
    do
    :: i < RANKS ->
       run rank(i);
       if
       :: i < REQUESTED ->
          j = 0; /* any number of requests up to REQUESTS */
          do
          :: j < REQUESTS -> j++
          :: break
          od;
          run clients(i, j)
       :: else
       fi;
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

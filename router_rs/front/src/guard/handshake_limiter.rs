//! Lets the new connections of one I/O thread in, a few in each turn.
//!
//! Greeting a connection costs as much as several requests, and with TLS much more. Without a
//! bound, all connections of a crowd would be greeted before a request behind them is read, and
//! would have buffers before any that must make room is closed. So each connection waits for its
//! place in a turn, in order of arrival, and requests are handled in between.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// Places in one turn of a thread: a millisecond or two of greetings. Arbitrary.
const PLACES: u32 = 16;

/// The cost of a greeting, in places.
pub(crate) const GREETING: u32 = 1;

/// The additional cost of a TLS handshake. Arbitrary: it has been measured at four times as much,
/// with keys of ECDSA.
pub(crate) const TLS: u32 = 4;

thread_local! {
    static LIMITER: HandshakeLimiter = HandshakeLimiter {
        places: Rc::new(Semaphore::new(PLACES as usize)),
        is_turning: Cell::new(false),
    };
}

struct HandshakeLimiter {
    places: Rc<Semaphore>,
    /// A connection has passed in this turn or the one before.
    is_turning: Cell<bool>,
}

/// Waits for this many places of one turn, at most `PLACES`.
pub(crate) async fn pass(places: u32) {
    let free = LIMITER.with(|handshake_limiter| {
        if !handshake_limiter.is_turning.replace(true) {
            tokio::task::spawn_local(turn(Rc::clone(&handshake_limiter.places)));
        }
        Rc::clone(&handshake_limiter.places)
    });
    let taken = free.acquire_many(places).await.expect("invariant: nobody closes it");
    taken.forget();
}

/// Frees the places at the end of each turn, until no more connections pass.
async fn turn(places: Rc<Semaphore>) {
    loop {
        // The thread checks its sockets and timers before it comes back.
        yield_now().await;
        let taken = PLACES as usize - places.available_permits();
        if taken == 0 {
            break;
        }
        places.add_permits(taken);
    }
    LIMITER.with(|handshake_limiter| handshake_limiter.is_turning.set(false));
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    const CROWD: u32 = 10 * PLACES;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, test);
    }

    /// Lets a crowd pass; returns how many had passed at each look of an observer that looks once
    /// per turn.
    async fn looks(places: u32) -> Vec<u32> {
        let passed = Rc::new(Cell::new(0));
        for _ in 0..CROWD {
            let passed = Rc::clone(&passed);
            spawn_local(async move {
                pass(places).await;
                passed.set(passed.get() + 1);
            });
        }
        let mut looks = Vec::new();
        while passed.get() < CROWD {
            yield_now().await;
            looks.push(passed.get());
        }
        looks
    }

    fn steps(looks: &[u32]) -> impl Iterator<Item = u32> {
        looks.windows(2).map(|pair| pair[1] - pair[0])
    }

    #[test]
    fn others_have_their_turn_between_a_crowd() {
        run(async {
            assert!(steps(&looks(GREETING).await).all(|step| step <= PLACES));
            assert!(steps(&looks(TLS).await).all(|step| step <= PLACES / TLS + 1));
        });
    }

    #[test]
    fn a_few_pass_at_once_and_again_later() {
        run(async {
            for _ in 0..3 {
                for _ in 0..PLACES {
                    let mut passing = std::pin::pin!(pass(1));
                    let is_free = poll_fn(|cx| Poll::Ready(passing.as_mut().poll(cx).is_ready()));
                    assert!(is_free.await);
                }
                while LIMITER.with(|handshake_limiter| handshake_limiter.is_turning.get()) {
                    yield_now().await;
                }
            }
        });
    }

    #[test]
    fn one_that_gives_up_takes_nobodys_place() {
        run(async {
            for _ in 0..CROWD {
                let waiting = spawn_local(pass(PLACES));
                yield_now().await;
                waiting.abort();
            }
            assert_eq!(Some(&CROWD), looks(PLACES).await.last());
        });
    }
}

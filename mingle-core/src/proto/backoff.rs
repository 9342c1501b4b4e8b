//! Intervals between repeats, which grow, with jitter.

use std::time::Duration;

use rand::{Rng, RngExt};

use super::timer::Time;

/// Doubles from a first interval to a last one; each is drawn from three quarters to five quarters
/// of its value, so that nodes that started together do not stay in step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Backoff {
    first: Duration,
    last: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, last: Duration) -> Self {
        Self { first, last, next: first }
    }

    /// Starts again from the first interval.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The time of the next repeat.
    pub(crate) fn after(&mut self, now: Time, rng: &mut impl Rng) -> Time {
        let interval = self.next;
        self.next = (interval * 2).min(self.last);
        now + interval.mul_f64(rng.random_range(0.75..1.25))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn intervals_double_to_the_last_and_stay_within_a_quarter_of_it() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(100));
        for expected in [20u32, 40, 80, 100, 100] {
            let interval = backoff.after(Duration::ZERO, &mut rng);
            let range =
                Duration::from_millis(1) * expected * 3 / 4..=Duration::from_millis(1) * expected * 5 / 4;
            assert!(range.contains(&interval), "{interval:?} is not about {expected} ms");
        }
        backoff.reset();
        assert!(backoff.after(Duration::ZERO, &mut rng) <= Duration::from_millis(25));
    }
}

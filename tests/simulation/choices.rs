//! Where the choices of a plan come from: the number of a seed, or the bytes of a fuzzer.

use std::collections::VecDeque;

/// Chooses, and is the same in each run.
#[derive(Clone, Debug)]
pub(crate) enum Choices {
    Seed(u64),
    /// One for each choice, or two where there are many. Behind the last one every choice is the
    /// first.
    #[allow(dead_code, reason = "only the fuzz target has bytes")]
    Bytes(VecDeque<u8>),
}

impl Choices {
    fn next(&mut self, end: u64) -> u64 {
        match self {
            Self::Seed(state) => {
                *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                mixed ^ (mixed >> 31)
            }
            Self::Bytes(bytes) => {
                let low = u64::from(bytes.pop_front().unwrap_or_default());
                match end {
                    0..=256 => low,
                    _ => low | u64::from(bytes.pop_front().unwrap_or_default()) << 8,
                }
            }
        }
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next(end) % end
    }

    pub(crate) fn size(&mut self, end: usize) -> usize {
        usize::try_from(self.below(u64::try_from(end).expect("small"))).expect("small")
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) >= 100 - chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.size(choices.len())]
    }

    /// Whether a fuzzer has said all it has.
    #[allow(dead_code, reason = "only the fuzz target has bytes")]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.is_empty())
    }
}

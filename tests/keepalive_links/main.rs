//! Two machines over a simulated link: who is believed alive, who dead, and when.

mod cases;
mod random;
mod world;

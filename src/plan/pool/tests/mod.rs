//! What the controller decides.

mod property;
mod rows;
mod world;

mod phases;
mod property;
mod rows;
mod world;

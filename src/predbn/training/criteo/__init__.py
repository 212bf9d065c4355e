"""The paper's network for click prediction on Criteo's rows."""

"""What happens to the data: the 19 corruptions, mixtures of them, stream orders, tabular shift."""
